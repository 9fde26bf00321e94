"""Run one fairseq program as a job of a study: `train` or `generate`.

A job may be killed at any moment and started again. Training goes on from its last checkpoint as
long as nothing that it depends on has changed; a result appears under its name only when it is
whole. Whether there is a GPU is decided where and when the job runs.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from headprune.errors import DataError, HeadpruneError
from headprune.files import atomic_path, write_text_atomically
from headprune.json_files import json_object
from headprune.memory import KEEP_MEMORY

# A training that only runs for longer is the same training: it goes on.
LENGTH_FLAGS = ("--max-epoch", "--max-update")
# Wherever the plugin lies; and what the other two name is told by its content, with --depends.
PATH_FLAGS = ("--user-dir", "--head-plan", "--finetune-from-model")
PROGRESS_EVERY_SECONDS = 60.0


def main(arguments: Sequence[str] | None = None) -> int:
    """The program; returns its exit status."""
    options, fairseq_flags = _parse(arguments)
    try:
        if options.step == "train":
            train(options, fairseq_flags)
        elif options.step == "generate":
            generate(options, fairseq_flags)
        else:
            _inside(options, fairseq_flags)
    except HeadpruneError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return problem.exit_status
    return 0


def train(options: argparse.Namespace, flags: list[str]) -> None:
    """Train beside `options.model`, in the folder `training`, from its last checkpoint that fits.

    Afterwards the best checkpoint stands at `options.model`, without the optimizer's state, with
    a `.json` beside it that says how it came about.
    """
    save_dir: Path = options.model.parent / "training"
    save_dir.mkdir(parents=True, exist_ok=True)
    with _alone_in(save_dir) as lock:
        _forget_unless_same(save_dir, _identity(options, flags))
        _keep_log_in(save_dir, options.log)
        _mend_last_checkpoint(save_dir)
        command = [
            *_this_script("train-inside", options),
            *("--model", str(options.model)),
            *(["--keep-checkpoints"] if options.keep_checkpoints else []),
            "--",
            *(*_data_flags(options.data), *flags, "--save-dir", str(save_dir)),
        ]
        _run(command, options=options, keep_open=lock)


def generate(options: argparse.Namespace, flags: list[str]) -> None:
    """Translate the test set; fairseq's output goes to `options.output`.

    With `options.head_plan` the model is pruned when it is loaded, in `options.head_form`.
    """
    prepared = _prepared(options.data)
    tokenizer, bpe = prepared["tokenizer"], prepared["bpe"]
    undo = ["--tokenizer", tokenizer] if tokenizer else []
    undo += ["--remove-bpe", "sentencepiece"] if bpe == "sentencepiece" else ["--remove-bpe"]
    with atomic_path(options.output) as temporary:
        command = [
            *_this_script("generate-inside", options),
            "--",
            *(*_data_flags(options.data), *flags, "--path", str(options.model)),
            *("--gen-subset", "test", "--no-progress-bar", *undo, *_overrides(options)),
        ]
        _run(command, options=options, output=temporary)


def _overrides(options: argparse.Namespace) -> list[str]:
    """fairseq-generate's flags that prune the model."""
    if options.head_plan is None:
        return []
    values = {"head_plan": str(options.head_plan), "head_form": options.head_form}
    items = ", ".join(f"{_literal(name)}: {_literal(value)}" for name, value in values.items())
    return ["--model-overrides", f"{{{items}}}"]


def _literal(text: str) -> str:
    """A Python literal of `text` in which nothing but letters, digits and `/._-` stands for itself.

    fairseq hands the flag to hydra, which has a meaning of its own for quotes and backslashes,
    before it is read as Python.
    """
    escaped = "".join(c if c.isalnum() or c in "/._-" else f"\\U{ord(c):08x}" for c in text)
    return f'"{escaped}"'


def _inside(options: argparse.Namespace, flags: list[str]) -> None:
    """What runs in a process of its own: fairseq's program, then the finishing touches.

    Only here is torch imported: the outer process needs no second of it.
    """
    import torch

    if not torch.cuda.is_available():
        torch.set_num_threads(options.threads)
        flags = [*flags, "--cpu"]
    elif options.precision != "fp32":
        flags = [*flags, f"--{options.precision}"]
    # fairseq's programs read their flags from here.
    sys.argv = [f"fairseq-{options.step.removesuffix('-inside')}", *flags]
    if options.step == "train-inside":
        from fairseq_cli.train import cli_main

        save_dir = Path(flags[flags.index("--save-dir") + 1])
        resumed = (save_dir / "checkpoint_last.pt").exists()
        cli_main()
        _finish(save_dir, options.model, resumed=resumed)
        if not options.keep_checkpoints:
            for path in save_dir.glob("checkpoint*.pt"):
                path.unlink()
    else:
        from fairseq_cli.generate import cli_main

        cli_main()


def _finish(save_dir: Path, model: Path, *, resumed: bool) -> None:
    """Write the best model of a training that has ended, and the facts about it."""
    from fairseq_plugin.checkpoints import Checkpoint

    best = Checkpoint.load(save_dir / "checkpoint_best.pt")
    history = best.state["optimizer_history"][-1]
    iterator = best.state["extra_state"]["train_iterator"]
    best.state["last_optimizer_state"] = None
    best.save(model)
    facts = {
        "parameters": best.parameters,
        "best_updates": int(history["num_updates"]),
        "best_epoch": int(iterator["epoch"]) - int(iterator["iterations_in_epoch"] == 0),
        "best_valid_loss": float(best.state["extra_state"]["best"]),
        "resumed": resumed,
    }
    write_text_atomically(model.with_suffix(".json"), json.dumps(facts, indent=1) + "\n")


def _run(
    command: list[str],
    *,
    options: argparse.Namespace,
    output: Path | None = None,
    keep_open: int | None = None,
) -> None:
    """Run fairseq, its words appended to the log, its progress on the terminal.

    With `output`, standard output is the result and only standard error goes to the log.
    """
    environment = {
        **KEEP_MEMORY,
        **os.environ,
        "OMP_NUM_THREADS": str(options.threads),
        "PYTHONUNBUFFERED": "1",
        "PYTHONUTF8": "1",
    }
    options.log.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(options.log.open("a", encoding="utf-8"))
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
            _follow(process.stdout, log=log, label=options.label)
        status = process.wait()
    if status:
        raise DataError(
            f"{options.label}: fairseq ended with status {status}: {_last_words(options.log)} "
            f"(all of it in {options.log})"
        )
    _say(f"{options.label}: done in {time.monotonic() - started:.0f} s")


def _last_words(log: Path) -> str:
    """The last line of a log that says anything: of a traceback, the error itself."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 10_000))
        lines = file.read().decode("utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "nothing was said")


def _follow(words: IO[str], *, log: IO[str], label: str) -> None:
    """Copy fairseq's words to the log; say each validation, and once a minute the progress."""
    said = time.monotonic()
    for line in words:
        log.write(line)
        log.flush()
        progress = progress_line(line)
        if progress and ("valid" in progress or time.monotonic() - said >= PROGRESS_EVERY_SECONDS):
            said = time.monotonic()
            _say(f"{label}: {progress}")


def progress_line(line: str) -> str | None:
    """What a line of fairseq's log says about progress, in short; None if it says nothing.

    >>> progress_line("... | epoch 003 | valid on 'valid' subset | loss 3.7 | ppl 4.2 | wps 9")
    'epoch 3 | valid ppl 4.2'
    """
    if match := re.search(r"epoch (\d+) \| valid on .*?\| ppl ([\d.]+)", line):
        return f"epoch {int(match[1])} | valid ppl {match[2]}"
    if match := re.search(r"epoch (\d+): +(\d+) / (\d+) .*?\bppl=([\d.]+)", line):
        return f"epoch {int(match[1])} | batch {match[2]} of {match[3]} | ppl {match[4]}"
    # A fine-tuning that begins loads its baseline at 0 updates; only a resumed one goes on.
    if match := re.search(r"Loaded checkpoint .*?epoch (\d+) @ ([1-9]\d*) updates", line):
        return f"epoch {int(match[1])} | going on after {match[2]} updates | not yet valid"
    return None


def _say(text: str) -> None:
    # The terminal may be gone when the study was killed and its jobs go on.
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _ended_with_us(process: subprocess.Popen[str]) -> Iterator[None]:
    """End `process` when this one is told to end, so that none goes on unseen."""

    def stop(number: int, _: object) -> None:
        process.terminate()
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        if process.poll() is None:
            process.terminate()
        process.wait()


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[int]:
    """Hold a training folder; wait where another process, perhaps left over, trains in it.

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


def _identity(options: argparse.Namespace, flags: Sequence[str]) -> str:
    """What a training is: its flags, data and the files it starts from, but not its length.

    Nor where it lies: what is trained from is told by its contents.
    """
    left_out = {*LENGTH_FLAGS, *PATH_FLAGS}
    kept = [f for f, before in zip(flags, ["", *flags], strict=False) if before not in left_out]
    data = [p for p in (options.data / "bin").glob("*") if p.suffix in (".bin", ".idx", ".txt")]
    digests: list[str] = []
    for path in [*sorted(data), *options.depends]:
        try:
            with path.open("rb") as file:
                digests.append(hashlib.file_digest(file, "sha256").hexdigest())
        except OSError as problem:
            raise DataError(f"{path}: cannot be read: {problem.strerror}") from problem
    return json.dumps({"flags": kept, "precision": options.precision, "sha256": digests}, indent=1)


def _forget_unless_same(save_dir: Path, identity: str) -> None:
    """Remove the checkpoints of a training that was started from something else."""
    mark = save_dir / "training.json"
    if not mark.is_file() or mark.read_text(encoding="utf-8") != identity:
        old = list(save_dir.glob("checkpoint*.pt"))
        if old:
            _say(f"{save_dir}: the study has changed since this training began; beginning anew")
        for path in old:
            path.unlink()
        write_text_atomically(mark, identity)


def _keep_log_in(save_dir: Path, log: Path) -> None:
    """Make `log` another name of a file in the training's folder, to which each attempt adds.

    snakemake deletes a job's log before it runs the job again, and a training that was killed
    would lose the words on its first epochs.
    """
    kept = save_dir / "train.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    log.symlink_to(os.path.relpath(kept.resolve(), log.parent.resolve()))


def _mend_last_checkpoint(save_dir: Path) -> None:
    """Replace a checkpoint_last.pt that a kill has cut short.

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


def _prepared(data: Path) -> dict[str, Any]:
    path = data / "prep.json"
    prepared = json_object(path)
    for key in ("source_lang", "target_lang", "tokenizer", "bpe"):
        if not isinstance(prepared.get(key, 0), (str, type(None))):
            raise DataError(f"{path}: not the data preparation's description: {key!r}")
    return prepared


def _data_flags(data: Path) -> list[str]:
    prepared = _prepared(data)
    languages = ["--source-lang", prepared["source_lang"], "--target-lang", prepared["target_lang"]]
    return [str(data / "bin"), *languages]


def _this_script(step: str, options: argparse.Namespace) -> list[str]:
    common = ["--threads", str(options.threads), "--precision", options.precision]
    return [sys.executable, __file__, step, *common]


def _parse(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    given = list(sys.argv[1:] if arguments is None else arguments)
    at = given.index("--") if "--" in given else len(given)
    given, fairseq_flags = given[:at], given[at + 1 :]

    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--threads", type=int, default=1, help="CPU threads")
    common.add_argument(
        "--precision",
        choices=("fp32", "fp16", "bf16"),
        default="fp32",
        help="arithmetic, where there is a GPU; a CPU always takes fp32",
    )
    outer = argparse.ArgumentParser(add_help=False, parents=[common])
    outer.add_argument("--data", type=Path, required=True, help="prepared data: bin/, prep.json")
    outer.add_argument("--log", type=Path, required=True, help="file for fairseq's words")
    outer.add_argument("--label", required=True, help="what the job is called on the terminal")

    parser = argparse.ArgumentParser(description=__doc__)
    steps = parser.add_subparsers(dest="step", required=True)
    step = steps.add_parser("train", parents=[outer], help="train or fine-tune; flags after --")
    step.add_argument(
        "--model",
        type=Path,
        required=True,
        help="where the best model goes; checkpoints go to the folder training beside it",
    )
    step.add_argument(
        "--depends",
        type=Path,
        nargs="*",
        default=[],
        help="files that the training starts from; if they change, it starts anew",
    )
    _keep_checkpoints(step)
    step = steps.add_parser("generate", parents=[outer], help="translate the test set")
    step.add_argument("--model", type=Path, required=True, help="checkpoint to translate with")
    step.add_argument("--output", type=Path, required=True, help="file for fairseq's output")
    step.add_argument("--head-plan", type=Path, help="prune the model as this plan says")
    step.add_argument("--head-form", choices=("remove", "mask"), default="remove", help="and so")
    step = steps.add_parser("train-inside", parents=[common])
    step.add_argument("--model", type=Path, required=True)
    _keep_checkpoints(step)
    steps.add_parser("generate-inside", parents=[common])
    return parser.parse_args(given), fairseq_flags


def _keep_checkpoints(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keep-checkpoints",
        action="store_true",
        help="keep the checkpoints of the ended training, for training it longer",
    )


if __name__ == "__main__":
    sys.exit(main())
