"""Run fairseq's programs as jobs: training, and translation in a separate process.

A job may be killed at any moment and started again. Training resumes from its last checkpoint as
long as nothing that it depends on has changed; a result appears under its name only when it is
whole. Whether there is a GPU is decided where and when the job runs.

A job is two processes. The outer one holds the lock of the training's folder, keeps the log and
shows the progress. Importing fairseq takes seconds, and the outer process needs none of it:
studies load this module by itself, so it imports the package's others inside functions only.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from data_prep.lib.prepared import PreparedCorpus
from headprune.errors import DataError, HeadpruneError, UsageError
from headprune.files import atomic_path, write_text_atomically
from headprune.memory import KEEP_MEMORY
from headprune.recovery.distillation import TEACHER, Distillation
from headprune.results.curves import CURVE, read_log

if TYPE_CHECKING:
    from fairseq_plugin.checkpoints import Checkpoint

PLUGIN = Path(__file__).resolve().parent
PRECISIONS = ("fp32", "fp16", "bf16")

# fairseq drops the last batch where its size is no multiple of this, 8 unless it is set: up to
# seven sentences, of the test set too.
WHOLE_DATA = {"required-batch-size-multiple": 1}
GENERATE_DEFAULTS: dict[str, int] = {**WHOLE_DATA, "beam": 5, "batch-size": 64}
"""Flags of fairseq-generate wherever nothing else is asked for."""

# A training that only runs for longer is the same training: it resumes.
LENGTH_FLAGS = ("--max-epoch", "--max-update")
# The plugin is the same wherever it lies, and the other files are identified by their content.
PATH_FLAGS = ("--user-dir", "--plan", "--head-plan", "--finetune-from-model", "--distill-from")
PROGRESS_EVERY_SECONDS = 60.0


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
    with _alone_in(save_dir) as lock:
        _keep_log_in(save_dir, job.log)
        _run(job, "train", [*own, "--", *flags], keep_open=lock)


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
        *(sys.executable, "-P", "-m", "fairseq_plugin.running", program),
        *(*threads, "--precision", job.precision, *arguments),
    ]
    installed = PLUGIN.parent.name.endswith("-packages")
    places = [*([] if installed else [str(PLUGIN.parent)]), os.environ.get("PYTHONPATH", "")]
    environment = {
        **KEEP_MEMORY,
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
            pass_fds=() if keep_open is None else (keep_open,),
        )
        stack.enter_context(_ended_with_us(process))
        if process.stdout is not None:
            _follow(process.stdout, log=log, label=job.label)
        status = process.wait()
    if status:
        raise DataError(
            f"{job.label}: fairseq-{program} ended with status {status}: {_last_line(job.log)} "
            f"(all of it in {job.log})"
        )
    _say(f"{job.label}: done in {time.monotonic() - started:.0f} s")


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
        if line.startswith(_NOTE):
            _say(f"{label}: {line.removeprefix(_NOTE).strip()}")
            continue
        progress = progress_line(line)
        if progress and ("valid" in progress or time.monotonic() - shown >= PROGRESS_EVERY_SECONDS):
            shown = time.monotonic()
            _say(f"{label}: {progress}")


_NOTE = "note: "
"""The beginning of lines from the inner process that are for the terminal."""


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
def _ended_with_us(process: subprocess.Popen[str]) -> Iterator[None]:
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
def _alone_in(folder: Path) -> Iterator[int]:
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


# The rest of this module runs in the inner process.


def main(arguments: Sequence[str] | None = None) -> int:
    """The inner process: fairseq's program with its preparation and clean-up.

    Returns:
        The exit status.
    """
    options, flags = _parse(arguments)
    # fairseq's own format; what was imported before has set up the logging without times. The
    # output of fairseq-generate is a result.
    logging.basicConfig(
        format="%(asctime)s | %(levelname)s | %(name)s | %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
        level=os.environ.get("LOGLEVEL", "INFO").upper(),
        stream=sys.stdout if options.program == "train" else sys.stderr,
        force=True,
    )
    try:
        if options.program == "train":
            _train_inside(options, flags)
        else:
            from fairseq_cli.generate import cli_main

            _call(cli_main, "generate", [*flags, *_machine_flags(options)])
    except HeadpruneError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return problem.exit_status
    return 0


def _train_inside(options: argparse.Namespace, flags: list[str]) -> None:
    from fairseq_cli.train import cli_main

    from fairseq_plugin import schedule

    save_dir: Path = options.save_dir
    source_target = zip(("--source-lang", "--target-lang"), options.languages or (), strict=False)
    data = [str(options.data), *(word for pair in source_target for word in pair)]
    machine = _machine_flags(options)

    def updates_per_epoch() -> int:
        own = with_processes(flags, options.processes)
        updates = schedule.count_updates([*data, *own, *machine])
        print(f"{_NOTE}{updates} updates an epoch")
        return updates

    flags = schedule.resolve(flags, updates_per_epoch=updates_per_epoch)
    # Not the number of processes: a training may be resumed on a machine with fewer GPUs.
    mark = identity(flags, data=options.data, depends=options.depends, precision=options.precision)
    _forget_unless_same(save_dir, mark, adopt=options.adopt)
    _mend_last_checkpoint(save_dir)
    resumed = (save_dir / "checkpoint_last.pt").exists()
    arguments = [*data, *with_processes(flags, options.processes), "--save-dir", str(save_dir)]
    if options.processes > 1:
        _torchrun([*arguments, *machine], processes=options.processes)
    else:
        _call(cli_main, "train", [*arguments, *machine])
    _finish(save_dir, options.model, resumed=resumed)
    if not options.keep_checkpoints:
        for path in save_dir.glob("checkpoint*.pt"):
            path.unlink()


def _call(cli_main: Callable[[], object], program: str, flags: Sequence[str]) -> None:
    # fairseq refuses a second path to the package that this process has imported, such as a link.
    imported = sys.modules["fairseq_plugin"].__path__[0]
    own = [
        imported if before == "--user-dir" and _is_same_folder(flag, imported) else flag
        for before, flag in zip(["", *flags], flags, strict=False)
    ]
    # fairseq's programs read their flags from here.
    sys.argv = [f"fairseq-{program}", *own]
    cli_main()


def with_processes(flags: Sequence[str], processes: int) -> list[str]:
    """The flags for several processes, which together make the same batches as one.

    Each process does a part of the steps whose gradients `--update-freq` adds up.

    Raises:
        UsageError: the steps cannot be shared out evenly.
    """
    result = list(flags)
    if processes == 1:
        return result
    # argparse takes the last one; a list has a number for each epoch.
    place = max((i for i, flag in enumerate(result) if flag.split("=")[0] == _STEPS), default=None)
    prefix, given = "", "1"
    if place is not None and result[place] != _STEPS:
        prefix, given = f"{_STEPS}=", result[place].split("=", 1)[1]
    elif place is not None and place + 1 < len(result):
        place += 1
        given = result[place]
    steps = [int(part) if part.isdecimal() else 0 for part in given.split(",")]
    if place is None or any(number < processes or number % processes for number in steps):
        raise UsageError(
            f"{processes} GPUs: {_STEPS} is {given}, no multiple of it, so the batches would "
            f"be larger than on one GPU; give smaller --max-tokens and a larger {_STEPS}"
        )
    result[place] = prefix + ",".join(str(number // processes) for number in steps)
    return result


_STEPS = "--update-freq"


def _torchrun(flags: Sequence[str], *, processes: int) -> None:
    """Run fairseq-train in several processes, one for each GPU.

    Raises:
        DataError: it fails.
    """
    import torch

    shared = ["--distributed-world-size", str(processes)]
    if not torch.cuda.is_available():
        shared += ["--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp"]
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *("--nproc-per-node", str(processes), "-m", "fairseq_cli.train", *flags, *shared),
    ]
    process = subprocess.Popen(command, text=True)
    with _ended_with_us(process):
        status = process.wait()
    if status:
        raise DataError(f"torchrun with {processes} processes ended with status {status}")


def _is_same_folder(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _machine_flags(options: argparse.Namespace) -> list[str]:
    """The flags that depend on the machine; sets the number of torch's threads."""
    import torch

    if torch.cuda.is_available():
        return [] if options.precision == "fp32" else [f"--{options.precision}"]
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    return ["--cpu"]


def identity(flags: Sequence[str], *, data: Path, depends: Sequence[Path], precision: str) -> str:
    """A text that identifies a training, independent of its length and the paths of its files.

    Args:
        flags, data, depends: see ``train``.
        precision: see ``Job``.

    Raises:
        DataError: a file cannot be read.
    """
    left_out = {*LENGTH_FLAGS, *PATH_FLAGS}
    kept = [f for f, before in zip(flags, ["", *flags], strict=False) if before not in left_out]
    files = [path for path in data.glob("*") if path.suffix in (".bin", ".idx", ".txt")]
    digests: list[str] = []
    for path in [*sorted(files), *depends]:
        try:
            with path.open("rb") as file:
                digests.append(hashlib.file_digest(file, "sha256").hexdigest())
        except OSError as problem:
            raise DataError(f"{path}: cannot be read: {problem.strerror}") from problem
    return json.dumps({"flags": kept, "precision": precision, "sha256": digests}, indent=1)


def _forget_unless_same(save_dir: Path, mark: str, *, adopt: bool) -> None:
    """Remove the checkpoints of a training with other flags, data or files.

    Args:
        mark: the result of ``identity``.
        adopt: see ``train``.
    """
    path = save_dir / "training.json"
    known = path.read_text(encoding="utf-8") if path.is_file() else None
    if known == mark:
        return
    checkpoints = list(save_dir.glob("checkpoint*.pt"))
    if checkpoints and not (adopt and known is None):
        print(f"{_NOTE}its flags, data or plan have changed since it began; beginning anew")
        for checkpoint in checkpoints:
            checkpoint.unlink()
    write_text_atomically(path, mark)


def _mend_last_checkpoint(save_dir: Path) -> None:
    """Replace a checkpoint_last.pt that was truncated by a kill.

    fairseq renames the first file of a save into place, but copies it to the second: that copy
    can be cut short, and then the best checkpoint is the file it was being copied from.
    """
    last, best = save_dir / "checkpoint_last.pt", save_dir / "checkpoint_best.pt"
    if not last.exists() or zipfile.is_zipfile(last):
        return
    if zipfile.is_zipfile(best):
        with atomic_path(last) as temporary:
            shutil.copyfile(best, temporary)
    else:
        last.unlink()


def _finish(save_dir: Path, model: Path, *, resumed: bool) -> None:
    """Write the best model of a finished training, and the facts of the training."""
    from fairseq_plugin.checkpoints import Checkpoint

    places = [save_dir / f"checkpoint_{name}.pt" for name in ("best", "last")]
    path = next((path for path in places if path.exists()), None)
    if path is None:
        raise DataError(f"{save_dir}: fairseq-train left no checkpoint")
    best = Checkpoint.load(path)
    history = best.state["optimizer_history"][-1]
    extra = best.state["extra_state"]
    iterator = extra["train_iterator"]
    best.state["last_optimizer_state"] = None
    best.save(model)
    facts: dict[str, Any] = {
        "parameters": best.parameters,
        "best_updates": int(history["num_updates"]),
        "best_epoch": int(iterator["epoch"]) - int(iterator["iterations_in_epoch"] == 0),
        **({"best_valid_loss": float(extra["best"])} if "best" in extra else {}),
        "resumed": resumed,
    }
    facts |= _teacher_facts(best)
    log = save_dir / "train.log"
    if log.is_file() and (curve := read_log(log)):
        facts[CURVE] = curve.as_json()
    write_text_atomically(model.with_suffix(".json"), json.dumps(facts, indent=1) + "\n")


def _teacher_facts(trained: Checkpoint) -> dict[str, Any]:
    """The weights of a distillation and the fingerprint of its teacher; empty without one."""
    from fairseq_plugin.checkpoints import Checkpoint

    cfg = trained.state.get("cfg")
    criterion = cfg.get("criterion") if isinstance(cfg, dict) else None
    teacher = criterion.get("distill_from") if isinstance(criterion, dict) else None
    if not isinstance(criterion, dict) or not teacher:
        return {}
    chosen = Distillation.of_settings(criterion) or Distillation()
    return chosen.as_settings() | {TEACHER: Checkpoint.load(Path(teacher)).fingerprint}


def _parse(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    given = list(sys.argv[1:] if arguments is None else arguments)
    at = given.index("--")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--threads", type=int)
    common.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser = argparse.ArgumentParser(prog="python -m fairseq_plugin.running")
    programs = parser.add_subparsers(dest="program", required=True)
    program = programs.add_parser("train", parents=[common])
    for name in ("--data", "--save-dir", "--model"):
        program.add_argument(name, type=Path, required=True)
    program.add_argument("--languages", nargs=2)
    program.add_argument("--depends", type=Path, nargs="*", default=[])
    program.add_argument("--processes", type=int, default=1)
    for name in ("--keep-checkpoints", "--adopt"):
        program.add_argument(name, action="store_true")
    programs.add_parser("generate", parents=[common])
    return parser.parse_args(given[:at]), given[at + 1 :]


if __name__ == "__main__":
    sys.exit(main())
