"""A training that is killed at a line of its log."""

from __future__ import annotations

import logging
import os
import re
import signal
from typing import Any

from fairseq_cli.train import cli_main


class KilledAt:
    """fairseq-train that kills itself as soon as it has logged a line.

    A kill from outside can be late.
    """

    def __init__(self, line: str) -> None:
        self.line = line

    def __call__(self) -> None:
        emit = logging.StreamHandler.emit

        def emit_and_die(handler: Any, record: logging.LogRecord) -> None:
            emit(handler, record)
            if re.search(self.line, handler.format(record)):
                os.kill(os.getpid(), signal.SIGKILL)

        logging.StreamHandler.emit = emit_and_die
        cli_main()
