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


BATCH = typer.Option(min=1, help="Number of sentences of a batch, or of images.")
LENGTH = typer.Option(
    min=3,
    help="Number of tokens of a sentence, on both sides of a translation. Images have the size "
    "that the model takes.",
)
THREADS = typer.Option(min=1, help="Number of CPU threads.", show_default="torch's")
DEVICE = typer.Option(help="The processor; a GPU is used with `cuda` alone.")
JOB = typer.Option(
    help="The work that is timed: "
    + "; ".join(f"{job}, {what}" for job, what in JOBS.items())
    + "."
)
BEAM = typer.Option(
    min=1, help="Number of hypotheses of each sentence, with --job decoder or search."
)
