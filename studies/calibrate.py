"""Measure how long trainings and translations of a study take; the Snakefile's `calibrate` rule."""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from data_prep.lib.prepared import PreparedCorpus
from headprune.errors import DataError, exit_status
from studies.cost import Calibration
from studies.find import load_any
from studies.glue_study import GlueStudy, is_own
from studies.jobs import fine_tuning_options, measured_flags, option, without
from studies.plugin import ROOT, running
from studies.study import Study

UPDATES = 40
"""The length of the training that is measured."""
_INTERVAL = 10
_REPLACED = ("--max-epoch", "--max-update", "--log-interval")
_OF_TEACHER = ("--criterion", "--distill-weight", "--distill-temperature", "--distill-hidden")
_LABELS = "label_smoothed_cross_entropy"


def calibrate_translation(
    study: Study, *, data: Path, folder: Path, threads: int, processes: int = 1
) -> Calibration:
    """Train the unpruned model for some updates, and translate the test set with it.

    It has no teacher, as there is no baseline yet. It has not learned where sentences end, so its
    translations are given the mean length of the references.

    Args:
        study: the study.
        data: the prepared data.
        folder: the folder to train in.
        threads, processes: see ``running.Job``.

    Raises:
        DataError: the training fails or its log has no times.
    """
    replaced = (*_REPLACED, *(_OF_TEACHER if study.finetune.distilled else ()))
    flags = ["--arch", study.arch, *study.model_flags, *without(study.finetune.flags, replaced)]
    flags += ["--criterion", _LABELS] if study.finetune.distilled else []
    flags += ["--max-update", str(UPDATES), "--log-interval", str(_INTERVAL)]
    corpus = PreparedCorpus.load(data)
    log, model = folder / "train.log", folder / "model.pt"
    job = running.Job(
        label="calibration",
        log=log,
        threads=threads,
        precision=study.precision,
        processes=processes,
    )
    plugin = ["--user-dir", str(ROOT / "fairseq_plugin")]
    running.train(
        job,
        [*plugin, *flags],
        data=corpus.binarised,
        languages=corpus.languages,
        model=model,
        keep_checkpoints=True,
    )
    seconds, updates = read_log(log)
    started = time.monotonic()
    length = [] if corpus.test_length is None else _of_length(round(corpus.test_length))
    running.generate(
        replace(
            job,
            log=folder / "generate.log",
            threads=study.resources["generate"].threads,
            processes=1,
        ),
        [*plugin, *study.generate_flags, *length],
        corpus=corpus,
        model=model,
        output=folder / "generation.txt",
    )
    return Calibration(
        seconds_per_update={"translation": seconds},
        updates_per_epoch={"translation": updates},
        model_bytes=model.stat().st_size,
        flags=measured_flags(study),
        seconds_per_translation=time.monotonic() - started,
        checkpoint_bytes=sum(
            path.stat().st_size for path in (folder / "training").glob("checkpoint*.pt")
        ),
    )


def _of_length(tokens: int) -> list[str]:
    """The flags of fairseq-generate for translations of one length."""
    return ["--min-len", str(tokens), "--max-len-a", "0", "--max-len-b", str(tokens)]


def read_log(log: Path) -> tuple[float, int]:
    """The seconds of an update and the updates of an epoch, by the log of fairseq-train.

    Raises:
        DataError: the log has no lines about updates.
    """
    # Not by `ups`, which has two decimals: where an update takes minutes, it is 0. `wps` and `wpb`
    # have one each.
    intervals = re.findall(
        r"epoch \d+: +\d+ / (\d+) .*?\bwps=([\d.]+), .*?\bwpb=([\d.]+)", log.read_text("utf-8")
    )
    seconds = [float(words) / float(rate) for _, rate, words in intervals if float(rate)]
    # The first interval includes the start of the training; it is used if it is the only one.
    seconds = seconds[1:] or seconds
    if not seconds or not statistics.median(seconds):
        raise DataError(f"{log}: no updates to measure; the training set is too small")
    return statistics.median(seconds), int(intervals[0][0])


def calibrate_glue(
    study: GlueStudy, *, data_dir: Path | None, folder: Path, threads: int
) -> Calibration:
    """Fine-tune the unpruned model on some batches of each task.

    Raises:
        DataError: a fine-tuning fails.
    """
    seconds: dict[str, float] = {}
    updates: dict[str, int] = {}
    model_bytes = 0
    for task, flags in study.tasks.items():
        batch_size, available = _batches(study, task, data_dir)
        limit = option(flags, "--max-train-examples", default="")
        hold_out = float(option(flags, "--hold-out", default="0" if limit else "10"))
        examples = min(available, int(limit)) if limit else round(available * (1 - hold_out / 100))
        measured = min(examples, UPDATES * batch_size)
        output = folder / task
        replaced = ("--max-train-examples", "--hold-out", "--epochs")
        command = [
            *(sys.executable, "-m", "headprune.cli", *without(study.command(task), replaced)),
            *("--threads", str(threads), "--output", str(output)),
            *("--epochs", "1", "--max-train-examples", str(measured)),
            *([] if data_dir is None or is_own(flags) else ["--data-dir", str(data_dir)]),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no output"]
            raise DataError(f"{task}: the calibration failed: {lines[-1]}")
        result = json.loads((output / "result.json").read_text(encoding="utf-8"))
        steps = math.ceil(measured / batch_size)
        seconds[task] = result["training"]["seconds"] / steps
        updates[task] = math.ceil(examples / batch_size)
        files = [path for path in (output / "model").glob("**/*") if path.is_file()]
        model_bytes = max(model_bytes, sum(path.stat().st_size for path in files))
    return Calibration(
        seconds_per_update=seconds,
        updates_per_epoch=updates,
        model_bytes=model_bytes,
        flags=measured_flags(study),
    )


def _batches(study: GlueStudy, task: str, data_dir: Path | None) -> tuple[int, int]:
    """The batch size of a task's fine-tuning, and the number of its training examples."""
    from hf_plugin.glue.data import load_splits
    from hf_plugin.glue.tasks import task_named
    from hf_plugin.tasks.given import data_given

    options = fine_tuning_options(study, task)
    if is_own(study.tasks[task]):
        given = {name: value for name, value in options.items() if value is not None}
        data = data_given(given, model=study.model, untrained=True, metric=options["metric"])
        return options["batch_size"], len(data.load("train"))
    described = task_named(task)
    available = len(load_splits(described, data_dir, splits=["train"])["train"])
    return options["batch_size"] or described.batch_size, available


def main(arguments: Sequence[str] | None = None) -> int:
    """The program; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", type=Path)
    parser.add_argument("--data", type=Path, help="prepared data, for translation")
    parser.add_argument("--data-dir", type=Path, help="folder of GLUE's files")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--processes", type=int, default=1, help="one for each GPU, for translation"
    )
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    return exit_status(_calibrate, options)


def _calibrate(options: argparse.Namespace) -> None:
    """Measure, and write the file."""
    study = load_any(options.study)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.output.parent, prefix=".calibration.") as name:
        folder, threads = Path(name), options.threads
        if isinstance(study, GlueStudy):
            measured = calibrate_glue(
                study, data_dir=options.data_dir, folder=folder, threads=threads
            )
        else:
            measured = calibrate_translation(
                study,
                data=options.data,
                folder=folder,
                threads=threads,
                processes=options.processes,
            )
    measured.save(options.output)


if __name__ == "__main__":
    sys.exit(main())
