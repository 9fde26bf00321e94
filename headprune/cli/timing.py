"""Options of the commands that time models."""

from __future__ import annotations

from enum import StrEnum

import typer

from headprune.speed.forward_pass import JOBS


class Device(StrEnum):
    """The processor that models run on."""

    cpu = "cpu"
    cuda = "cuda"


class Job(StrEnum):
    """The part of a model's work that is timed."""

    forward = "forward"
    encoder = "encoder"
    decoder = "decoder"
    search = "search"


JOB = typer.Option(
    help="The work that is timed: "
    + "; ".join(f"{job}, {what}" for job, what in JOBS.items())
    + "."
)
BEAM = typer.Option(
    min=1, help="Number of hypotheses of each sentence, with --job decoder or search."
)
