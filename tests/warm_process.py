"""Command lines of fairseq in processes that have already imported it.

Importing torch and fairseq takes several seconds, much longer than a toy training. A server process
imports them once, and each command runs in a fork of it, which otherwise behaves like a process of
its own: its arguments, environment, standard streams, working folder and exit status.
"""

from __future__ import annotations

import atexit
import io
import multiprocessing
import os
import runpy
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import entry_points
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import IO

# Not the plugin: fairseq is to import it itself, where the command line says so.
# fairseq_cli.train is the first of fairseq's modules, as in its commands: it sets up the logging.
# torch imports _dynamo with the first optimizer of a training, which takes seconds again.
_PRELOADED = [
    *("torch", "torch._dynamo", "sacrebleu", "fairseq_cli.train", "hydra", "typer"),
    "hf_plugin",
]
_PROGRAMS = (
    "fairseq-train",
    "fairseq-generate",
    "fairseq-interactive",
    "fairseq-preprocess",
    "headprune",
)

_context: ForkServerContext | None = None


def can_run(command: tuple[str, ...]) -> bool:
    """True for programs that run in one process: not for distributed trainings."""
    several = any(word.startswith("--distributed") for word in command)
    return command[0] in _PROGRAMS and not several


def run(
    command: tuple[str, ...],
    *,
    text: str | None,
    folder: Path,
    environment: Mapping[str, str],
    timeout: float,
    main: Callable[[], object] | None = None,
    errors: Path | None = None,
) -> tuple[int, str]:
    """Run a command to its end.

    Args:
        command: name of the program, and its arguments.
        text: what it reads from standard input; None for nothing.
        folder: its working folder.
        environment: all of its environment variables.
        timeout: seconds after which it is killed.
        main: the function that is the program, instead of the installed one.
        errors: the file that standard error is written to.

    Returns:
        Its exit status, and its output; without `errors`, standard error is in it.
    """
    with tempfile.TemporaryDirectory() as temporary:
        given, output = Path(temporary, "in"), Path(temporary, "out")
        given.write_text(text or "")
        process = _server().Process(
            target=_run_program,
            args=(command, given, output, folder, dict(environment), main, errors),
        )
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            raise TimeoutError(f"{command[0]} ran for more than {timeout:g} seconds")
        return process.exitcode, output.read_text()


def _server() -> ForkServerContext:
    global _context
    if _context is None:
        _context = multiprocessing.get_context("forkserver")
        _context.set_forkserver_preload(_PRELOADED)
    return _context


def _run_program(
    command: tuple[str, ...],
    given: Path,
    output: Path,
    folder: Path,
    environment: dict[str, str],
    main: Callable[[], object] | None,
    errors: Path | None,
) -> None:
    """Become the program."""
    for path, mode, stream in (
        (given, os.O_RDONLY, 0),
        (output, os.O_WRONLY | os.O_CREAT, 1),
        (errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 2),
    ):
        if path is not None:
            descriptor = os.open(path, mode, 0o600)
            os.dup2(descriptor, stream)
            os.close(descriptor)
    if errors is None:
        os.dup2(1, 2)
    # multiprocessing closes its own standard input.
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = list(command)
    sys.path[0] = str(Path(sys.executable).parent)
    status = _status_of(main or _installed(command[0]))
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _installed(name: str) -> Callable[[], object]:
    """The function of an installed program."""
    (program,) = entry_points(group="console_scripts", name=name)
    return lambda: program.load()()


def _status_of(main: Callable[[], object]) -> int:
    """Run a program, as the interpreter would: with its hook for uncaught exceptions."""
    try:
        try:
            outcome = main()
        except Exception as error:
            sys.excepthook(type(error), error, error.__traceback__)
            return 1
    except SystemExit as end:
        outcome = end.code
    if isinstance(outcome, str):
        print(outcome, file=sys.stderr)
    return outcome if isinstance(outcome, int) else int(outcome is not None)


def run_module(name: str) -> None:
    """Do what `python -m NAME` does."""
    runpy.run_module(name, run_name="__main__", alter_sys=True)


class WarmPopen:
    """Stands in for `subprocess.Popen` where a module runs `python -P -m MODULE` and follows it.

    The process has ended when the constructor returns.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdout: IO[bytes] | int,
        stderr: IO[str] | int,
        env: Mapping[str, str],
        **_: object,
    ) -> None:
        module = command[command.index("-m") + 1]
        errors = None if isinstance(stderr, int) else Path(stderr.name)
        self.status, out = run(
            tuple(command[command.index("-m") + 1 :]),
            text=None,
            folder=Path.cwd(),
            environment=env,
            timeout=600,
            main=partial(run_module, module),
            errors=errors,
        )
        self.stdout = io.StringIO(out) if isinstance(stdout, int) else None
        if not isinstance(stdout, int):
            stdout.write(out.encode())

    def wait(self) -> int:
        """The exit status."""
        return self.status

    poll = wait
