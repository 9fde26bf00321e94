"""The process that runs fairseq's program for a job of ``fairseq_plugin.running``.

    python -m fairseq_plugin.worker train|copy|generate OPTIONS -- FLAGS OF FAIRSEQ

It knows the machine: the precision on a GPU, the number of threads on a CPU, and torchrun for
several GPUs. A training resumes from the checkpoints in its folder, or begins anew.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

from fairseq_plugin import schedule, training_folder
from fairseq_plugin.processes import with_processes
from fairseq_plugin.running import NOTE, PRECISIONS, ended_with_us
from headprune.errors import DataError, exit_status


def main(arguments: Sequence[str] | None = None) -> int:
    """Run fairseq's program, with its preparation and clean-up.

    Returns:
        The exit status.
    """
    options, flags = parse(arguments)
    # fairseq's own format; what was imported before has set up the logging without times. The
    # output of fairseq-generate is a result.
    logging.basicConfig(
        format="%(asctime)s | %(levelname)s | %(name)s | %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
        level=os.environ.get("LOGLEVEL", "INFO").upper(),
        stream=sys.stderr if options.program == "generate" else sys.stdout,
        force=True,
    )
    return exit_status(_run, options, flags)


def _run(options: argparse.Namespace, flags: list[str]) -> None:
    """Run fairseq's program."""
    if options.program == "train":
        train(options, flags)
    elif options.program == "copy":
        from fairseq_plugin.baseline_model import copy_baseline

        source, target = options.languages
        copy_baseline(
            options.checkpoint,
            flags,
            data=options.data,
            languages=(source, target),
            model=options.model,
        )
    else:
        from fairseq_cli.generate import cli_main

        _call(cli_main, "generate", [*flags, *_machine_flags(options)])


def train(options: argparse.Namespace, flags: list[str]) -> None:
    """Train, or resume, and write the model."""
    from fairseq_cli.train import cli_main

    save_dir: Path = options.save_dir
    source_target = zip(("--source-lang", "--target-lang"), options.languages or (), strict=False)
    data = [str(options.data), *(word for pair in source_target for word in pair)]
    machine = _machine_flags(options)
    if options.processes == 1 and schedule.flag_value(flags, _WORLD_SIZE) is None:
        machine += _ONE_PROCESS

    def updates_per_epoch() -> int:
        # Several processes make the batches of one, which needs no share of the steps.
        one = _ONE_PROCESS if options.processes > 1 else []
        updates = schedule.count_updates([*data, *flags, *machine, *one])
        print(f"{NOTE}{updates} updates an epoch")
        return updates

    flags = schedule.resolve(flags, updates_per_epoch=updates_per_epoch)
    # Not the number of processes: a training may be resumed on a machine with fewer GPUs.
    mark = partial(
        training_folder.identity,
        flags,
        data=options.data,
        depends=options.depends,
        precision=options.precision,
    )
    training_folder.forget_unless_same(
        save_dir, mark(), adopt=options.adopt, older_mark=partial(mark, test_sets=True)
    )
    training_folder.mend_last_checkpoint(save_dir)
    training_folder.forget_if_longer(save_dir, flags)
    resumed = (save_dir / "checkpoint_last.pt").exists()
    arguments = [*data, *with_processes(flags, options.processes), "--save-dir", str(save_dir)]
    if options.processes > 1:
        _torchrun([*arguments, *machine], processes=options.processes)
    else:
        with _collecting(options.movement):
            _call(cli_main, "train", [*arguments, *machine])
    training_folder.finish(
        save_dir, options.model, resumed=resumed, closed_plan=options.closed_plan
    )
    if not options.keep_checkpoints:
        for path in save_dir.glob("checkpoint*.pt"):
            path.unlink()


def _collecting(movement: Sequence[str] | None) -> AbstractContextManager[None]:
    """Sum the score movement of a training where its file and its components are given."""
    if movement is None:
        return nullcontext()
    from fairseq_plugin.scores.movement import collecting_movement

    path, components = movement
    return collecting_movement(Path(path), components.split(","))


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


_WORLD_SIZE = "--distributed-world-size"
_ONE_PROCESS = [_WORLD_SIZE, "1"]
"""fairseq-train's default is a process for each GPU of the machine, each with a whole batch."""


def _torchrun(flags: Sequence[str], *, processes: int) -> None:
    """Run fairseq-train in several processes, one for each GPU.

    Raises:
        DataError: it fails.
    """
    import torch

    shared = [_WORLD_SIZE, str(processes)]
    if not torch.cuda.is_available():
        shared += ["--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp"]
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        # The name of a machine may resolve to an address that its processes cannot reach.
        *("--local-addr", "127.0.0.1"),
        *("--nproc-per-node", str(processes), "-m", "fairseq_cli.train", *flags, *shared),
    ]
    process = subprocess.Popen(
        command, text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout is not None
    cause = ""
    with ended_with_us(process):
        for line in process.stdout:
            print(line, end="", flush=True)
            error = _ERROR_OF_A_PROCESS.match(line)
            # The first error is the cause: the other processes then lose their connection.
            cause = cause or (f": {error[1]}" if error else "")
        status = process.wait()
    if status:
        raise DataError(f"torchrun with {processes} processes ended with status {status}{cause}")


_ERROR_OF_A_PROCESS = re.compile(
    r"(?:\[rank\d+\]: )?\s*((?:[\w.]+(?:Error|Exception|Interrupt): |Signal \d+ \().*)"
)
"""The last line of a traceback, or torchrun's word that a process was killed by a signal."""


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


def parse(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """The worker's own options, before ``--``, and the flags for fairseq after it."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    at = given.index("--")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--threads", type=int)
    common.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser = argparse.ArgumentParser(prog="python -m fairseq_plugin.worker")
    programs = parser.add_subparsers(dest="program", required=True)
    model = argparse.ArgumentParser(add_help=False)
    for name in ("--data", "--model"):
        model.add_argument(name, type=Path, required=True)
    model.add_argument("--languages", nargs=2)
    program = programs.add_parser("copy", parents=[common, model])
    program.add_argument("--checkpoint", type=Path, required=True)
    program = programs.add_parser("train", parents=[common, model])
    program.add_argument("--save-dir", type=Path, required=True)
    program.add_argument("--depends", type=Path, nargs="*", default=[])
    program.add_argument("--processes", type=int, default=1)
    program.add_argument("--movement", nargs=2)
    program.add_argument("--closed-plan", type=Path)
    for name in ("--keep-checkpoints", "--adopt"):
        program.add_argument(name, action="store_true")
    programs.add_parser("generate", parents=[common])
    return parser.parse_args(given[:at]), given[at + 1 :]


if __name__ == "__main__":
    sys.exit(main())
