"""Run fairseq's programs as jobs: training, and translation in a separate process.

A job may be killed at any moment and started again. Training resumes from its last checkpoint as
long as nothing that it depends on has changed; a result appears under its name only when it is
whole. Whether there is a GPU is decided where and when the job runs.

A job is two processes. This one holds the lock of the training's folder, keeps the log and shows
the progress; the other is ``fairseq_plugin.worker``. Importing fairseq takes seconds, and this
process needs none of it: studies load this module by itself, without its package.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from data_prep.lib.prepared import PreparedCorpus
from headprune.errors import DataError
from headprune.files import atomic_path
from headprune.memory import KEEP_MEMORY

PLUGIN = Path(__file__).resolve().parent
PRECISIONS = ("fp32", "fp16", "bf16")

# fairseq drops the last batch where its size is no multiple of this, 8 unless it is set: up to
# seven sentences, of the test set too.
WHOLE_DATA = {"required-batch-size-multiple": 1}
GENERATE_DEFAULTS: dict[str, int] = {**WHOLE_DATA, "beam": 5, "batch-size": 64}
"""Flags of fairseq-generate wherever nothing else is asked for."""

PROGRESS_EVERY_SECONDS = 60.0
_GIVE_WAY = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Threads that wait for others give their core away. By default they keep it for a while, so that a
training with two threads, on two cores that another program used too, took seven times as long as
with this, or with one thread. On idle cores it costs about a tenth.
"""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Settings to run a program of fairseq.

    Attributes:
        label: the name of the job on the terminal.
        log: the file for fairseq's output.
        threads: CPU threads; None leaves their number to torch.
        precision: the precision on a GPU; a CPU always computes in fp32.
        processes: the number of processes that train together under torchrun, one for each GPU.
    """

    label: str
    log: Path
    threads: int | None = None
    precision: str = "fp32"
    processes: int = 1


def train(
    job: Job,
    flags: Sequence[str],
    *,
    data: Path,
    languages: tuple[str, str] | None,
    model: Path,
    depends: Sequence[Path] = (),
    keep_checkpoints: bool = False,
    adopt: bool = False,
    movement: tuple[Path, Sequence[str]] | None = None,
    closed_plan: Path | None = None,
) -> None:
    """Train in the folder ``training`` beside ``model``, and resume if it has a usable checkpoint.

    The best checkpoint (the last one of a training without validation) is then written to
    ``model``, without the optimizer's state. Facts about the training are written to a `.json`
    beside it.

    Args:
        flags: flags for fairseq-train, except the data, the languages and the folder. Shares of
            the training (see ``fairseq_plugin.schedule``) are replaced by numbers of updates.
        data: the binarised data.
        languages: source and target; None leaves them to fairseq, which looks at the data's names.
        model: the file to write.
        depends: the files that the training starts from; if they change, it begins anew.
        keep_checkpoints: keep the checkpoints of the finished training, to train it longer.
        adopt: resume from checkpoints of older versions, which did not record their settings; the
            caller knows that they belong to this training.
        movement: the file for the score movement of this training, and the components to score.
        closed_plan: close the gates that were learned, and write the plan of what is kept here.

    Raises:
        DataError: fairseq fails, or a file cannot be read.
    """
    save_dir = model.parent / "training"
    save_dir.mkdir(parents=True, exist_ok=True)
    own = ["--data", str(data), "--save-dir", str(save_dir), "--model", str(model)]
    if languages is not None:
        own += ["--languages", *languages]
    own += ["--depends", *map(str, depends)] if depends else []
    own += ["--keep-checkpoints"] if keep_checkpoints else []
    own += ["--adopt"] if adopt else []
    own += ["--processes", str(job.processes)] if job.processes > 1 else []
    if movement is not None:
        path, components = movement
        own += ["--movement", str(path), ",".join(components)]
    own += [] if closed_plan is None else ["--closed-plan", str(closed_plan)]
    with alone_in(save_dir) as lock:
        _keep_log_in(save_dir, job.log)
        _run(job, "train", [*own, "--", *flags], keep_open=lock)


def copy_baseline(
    job: Job,
    flags: Sequence[str],
    *,
    checkpoint: Path,
    data: Path,
    languages: tuple[str, str],
    model: Path,
) -> None:
    """Copy a checkpoint that is trained already to ``model``, after checking that it fits.

    Args:
        flags: the flags of fairseq-train for the model that is expected.
        checkpoint: the file.
        data, languages, model: see ``train``.

    Raises:
        DataError: it does not fit, or a file cannot be read.
    """
    own = ["--checkpoint", str(checkpoint), "--data", str(data), "--model", str(model)]
    _run(job, "copy", [*own, "--languages", *languages, "--", *flags])


def generate(
    job: Job,
    flags: Sequence[str],
    *,
    corpus: PreparedCorpus,
    model: Path,
    output: Path,
    plan: Path | None = None,
    form: str = "remove",
) -> None:
    """Translate the test set; fairseq-generate's output goes to ``output``.

    Args:
        flags: search options for fairseq-generate.
        corpus: the data.
        model: the checkpoint.
        output: the file to write.
        plan: prune the model by this plan, in the form ``form``, when it is loaded.

    Raises:
        DataError: fairseq fails, or a file cannot be read.
    """
    common = generation_flags(corpus, data=corpus.binarised, languages=corpus.languages)
    pruning = [] if plan is None else ["--model-overrides", _overrides(plan, form)]
    with atomic_path(output) as temporary:
        arguments = ["--", *common, *flags, "--path", str(model), *pruning]
        _run(job, "generate", arguments, output=temporary)


def generation_flags(
    corpus: PreparedCorpus, *, data: Path, languages: tuple[str, str]
) -> list[str]:
    """The flags of fairseq-generate that follow from the data: its test set, as detokenised text.

    Args:
        corpus: the corpus, which knows its text preparation.
        data: the binarised data.
        languages: the model's source and target; one preparation serves both directions.
    """
    source, target = languages
    return [
        *(str(data), "--source-lang", source, "--target-lang", target),
        *("--gen-subset", "test", "--no-progress-bar", *corpus.undo_flags),
    ]


def _overrides(plan: Path, form: str) -> str:
    """The value of fairseq-generate's ``--model-overrides`` that prunes the model."""
    values = {"head_plan": str(plan), "head_form": form}
    items = ", ".join(f"{_literal(name)}: {_literal(value)}" for name, value in values.items())
    return f"{{{items}}}"


def _literal(text: str) -> str:
    """A Python literal of `text` in which all but letters, digits and `/._-` is escaped.

    fairseq hands the flag to hydra, which has a meaning of its own for quotes and backslashes,
    before it is read as Python.
    """
    escaped = "".join(c if c.isalnum() or c in "/._-" else f"\\U{ord(c):08x}" for c in text)
    return f'"{escaped}"'


def _run(
    job: Job,
    program: str,
    arguments: Sequence[str],
    *,
    output: Path | None = None,
    keep_open: int | None = None,
) -> None:
    """Run fairseq in a separate process, with output to the log and progress to the terminal.

    With `output`, standard output is the result and only standard error goes to the log.
    """
    threads = [] if job.threads is None else ["--threads", str(job.threads)]
    command = [
        *(sys.executable, "-P", "-m", "fairseq_plugin.worker", program),
        *(*threads, "--precision", job.precision, *arguments),
    ]
    installed = PLUGIN.parent.name.endswith("-packages")
    places = [*([] if installed else [str(PLUGIN.parent)]), os.environ.get("PYTHONPATH", "")]
    environment = {
        **KEEP_MEMORY,
        **_GIVE_WAY,
        **os.environ,
        **({} if job.threads is None else {"OMP_NUM_THREADS": str(job.threads)}),
        "PYTHONPATH": os.pathsep.join(filter(None, places)),
        "PYTHONUNBUFFERED": "1",
        "PYTHONUTF8": "1",
    }
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(job.log.open("a", encoding="utf-8"))
        result = stack.enter_context(output.open("wb")) if output else None
        log.write(f"# {time.strftime('%Y-%m-%d %H:%M:%S')} {' '.join(command)}\n")
        log.flush()
        started = time.monotonic()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=result or subprocess.PIPE,
            stderr=log if result else subprocess.STDOUT,
            env=environment,
            text=True,
            errors="replace",
            pass_fds=(*([] if keep_open is None else [keep_open]), *inherited_locks()),
        )
        stack.enter_context(ended_with_us(process))
        if process.stdout is not None:
            _follow(process.stdout, log=log, label=job.label)
        status = process.wait()
    if status:
        raise DataError(
            f"{job.label}: fairseq-{program} ended with status {status}: {_last_line(job.log)} "
            f"(all of it in {job.log})"
        )
    _say(f"{job.label}: done in {time.monotonic() - started:.0f} s")


LOCKS = "HEADPRUNE_LOCKS"
"""The environment variable with the numbers of open files that hold locks, as of GPUs."""


def inherited_locks() -> list[int]:
    """The open files of locks that the program in a separate process holds, too.

    If this process is killed and the program goes on, its GPUs stay taken.
    """
    found = []
    for word in os.environ.get(LOCKS, "").split(","):
        with contextlib.suppress(ValueError, OSError):
            os.fstat(int(word))
            found.append(int(word))
    return found


def _last_line(log: Path) -> str:
    """The last line of a log that is not empty; after a traceback it is the error."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 10_000))
        lines = file.read().decode("utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "no output")


def _follow(lines: IO[str], *, log: IO[str], label: str) -> None:
    """Copy fairseq's output to the log; show each validation, and once a minute the progress."""
    shown = time.monotonic()
    for line in lines:
        log.write(line)
        log.flush()
        if line.startswith(NOTE):
            _say(f"{label}: {line.removeprefix(NOTE).strip()}")
            continue
        progress = progress_line(line)
        if progress and ("valid" in progress or time.monotonic() - shown >= PROGRESS_EVERY_SECONDS):
            shown = time.monotonic()
            _say(f"{label}: {progress}")


NOTE = "note: "
"""The beginning of the worker's lines that are for the terminal."""


def progress_line(line: str) -> str | None:
    """The progress that a line of fairseq's log reports, in short; None if it reports none.

    >>> progress_line("... | epoch 003 | valid on 'valid' subset | loss 3.7 | ppl 4.2 | wps 9")
    'epoch 3 | valid ppl 4.2'
    """
    if match := re.search(r"epoch (\d+) \| valid on .*?\| ppl ([\d.]+)", line):
        return f"epoch {int(match[1])} | valid ppl {match[2]}"
    if match := re.search(r"epoch (\d+): +(\d+) / (\d+) .*?\bppl=([\d.]+)", line):
        return f"epoch {int(match[1])} | batch {match[2]} of {match[3]} | ppl {match[4]}"
    # A fine-tuning that begins loads its baseline at 0 updates; only a resumed one has some.
    if match := re.search(r"Loaded checkpoint .*?epoch (\d+) @ ([1-9]\d*) updates", line):
        return f"epoch {int(match[1])} | resuming after {match[2]} updates | not yet valid"
    return None


def _say(text: str) -> None:
    # The terminal may be gone when a study was killed and its jobs still run.
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def ended_with_us(process: subprocess.Popen[str]) -> Iterator[None]:
    """End `process` when this process receives a signal to end."""

    def stop(number: int, _: object) -> None:
        process.terminate()
        raise SystemExit(128 + number)

    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ValueError):  # only the main thread can handle signals
            before = signal.signal(signal.SIGTERM, stop)
            stack.callback(signal.signal, signal.SIGTERM, before)
        try:
            yield
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait()


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[int]:
    """Lock a training folder; wait if another process, perhaps a left-over one, trains in it.

    The file is inherited by fairseq, so it is held until the last process of a training has ended
    even if this one is killed; and no lock is left behind that someone has to remove.
    """
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"{folder}: another process is training here; waiting for it to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


def _keep_log_in(save_dir: Path, log: Path) -> None:
    """Make `log` another name of a file in the training's folder, to which each attempt adds.

    snakemake deletes a job's log before it runs the job again, and a training that was killed
    would lose the log of its first epochs.
    """
    kept = save_dir / "train.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    log.symlink_to(os.path.relpath(kept.resolve(), log.parent.resolve()))
