"""Modules of fairseq_plugin, loaded without the package, which would import fairseq (slow)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headprune.plugins import load_module

ROOT = Path(__file__).resolve().parents[1]

if TYPE_CHECKING:
    from fairseq_plugin import processes, running, schedule, variants
else:
    processes = load_module("fairseq_plugin.processes")
    running = load_module("fairseq_plugin.running")
    schedule = load_module("fairseq_plugin.schedule")
    variants = load_module("fairseq_plugin.variants")

__all__ = ["ROOT", "processes", "running", "schedule", "variants"]
