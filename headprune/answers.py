"""Answers to the questions of programs that do not import a plugin's library.

Such a program runs a module of the plugin as a process of its own, with JSON on its standard input
and output.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from headprune.errors import HeadpruneError


def serve(answer: Callable[[Any], Mapping[str, Any] | None]) -> None:
    """Read a JSON list of questions and write a JSON list of their answers.

    Args:
        answer: function from a question to the fields of its answer, None for none. An error that
            the user can correct is in the answer's field ``mistake``, which is null otherwise.
    """
    questions = json.load(sys.stdin)
    # The libraries' own messages are no part of the answers.
    with contextlib.redirect_stdout(sys.stderr):
        answers = [_answered(answer, each) for each in questions]
    json.dump(answers, sys.stdout)


def _answered(answer: Callable[[Any], Mapping[str, Any] | None], question: Any) -> dict[str, Any]:
    try:
        return {"mistake": None, **(answer(question) or {})}
    except HeadpruneError as problem:
        return {"mistake": str(problem)}
