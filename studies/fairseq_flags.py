"""The fairseq flags of a study, checked by fairseq's own parsers when the study is read."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from headprune import DataError
from studies.study import Study

_ROOT = Path(__file__).resolve().parents[1]


def require_good_flags(study: Study, path: Path) -> None:
    """Raise a DataError where fairseq would refuse a flag of the study's.

    fairseq takes seconds to import, so the check runs in a process of its own, and flags that were
    good once are remembered in the user's cache folder.

    Args:
        study: the study.
        path: its file, for the message.
    """
    common = ["--arch", study.arch, *study.model_flags]
    asked = {
        "train": {"program": "train", "flags": [*common, *study.train_flags]},
        "finetune": {"program": "train", "flags": [*common, *study.finetune_flags]},
        "generate": {"program": "generate", "flags": [*study.generate_flags]},
    }
    question = json.dumps(list(asked.values()))
    known = _cache() / hashlib.sha256(f"{_sources()}{question}".encode()).hexdigest()
    if known.exists():
        return
    answer = subprocess.run(
        [sys.executable, "-m", "fairseq_plugin.flags"],
        cwd=_ROOT,
        input=question,
        capture_output=True,
        text=True,
    )
    if answer.returncode:
        words = answer.stderr.strip().splitlines() or ["nothing was said"]
        raise DataError(f"{path}: fairseq cannot check the flags: {words[-1]}")
    for section, message in zip(asked, json.loads(answer.stdout), strict=True):
        if message is not None:
            raise DataError(f"{path}: {_section(study, section, message)}: {message}")
    # Only speed is lost where the cache cannot be written.
    with suppress(OSError):
        known.parent.mkdir(parents=True, exist_ok=True)
        known.touch()


def _section(study: Study, section: str, message: str) -> str:
    """The key of the study that a message is on."""
    named = re.search(r"--[\w-]+", message)
    shared = section != "generate" and named is not None and named[0] in study.model_flags
    return "model" if shared else section


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home) / "headprune" / "good-flags"


def _sources() -> str:
    """A text that changes with fairseq and with the plugin."""
    spec = importlib.util.find_spec("fairseq")
    if spec is None or spec.origin is None:
        raise DataError("studies of translation need fairseq, which is not installed here")
    digest = hashlib.sha256(f"{spec.origin} {os.stat(spec.origin).st_mtime_ns}".encode())
    for source in sorted((_ROOT / "fairseq_plugin").rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()
