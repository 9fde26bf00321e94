"""A warning where fairseq-interactive reads text that its model does not know.

Raw text without ``--tokenizer`` and ``--bpe`` is mostly unknown words to a model of sub-words, and
fairseq translates them without a word about it.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any


def warn_of_unknown_words() -> None:
    """Let fairseq-interactive, if it is the running program, warn on standard error."""
    program = sys.modules.get("fairseq_cli.interactive")
    if program is not None:
        counter = Counter()
        program.make_batches = counter.watching(program.make_batches)  # type: ignore[attr-defined]
        atexit.register(counter.summarise)


@dataclass
class Counter:
    """Count of input lines and of those with unknown words.

    Attributes:
        lines: the lines read.
        unknown: those in which a word is unknown to the model.
    """

    lines: int = 0
    unknown: int = 0

    def watching(self, make_batches: Any) -> Any:
        """Wrap ``fairseq_cli.interactive.make_batches``; warns at the first unknown word."""

        @wraps(make_batches)
        def watched(lines: Sequence[str], cfg: Any, task: Any, *others: Any) -> Iterator[Any]:
            dictionary = task.source_dictionary
            for batch in make_batches(lines, cfg, task, *others):
                before = self.unknown
                for number, tokens in zip(batch.ids.tolist(), batch.src_tokens, strict=True):
                    has_unknown = bool((tokens == dictionary.unk()).any())
                    self.lines += 1
                    self.unknown += has_unknown and dictionary.unk_word not in lines[number]
                if self.unknown and not before:
                    print(
                        "warning: the input has words that the model does not know; it reads "
                        f"{dictionary.unk_word} there. Give --tokenizer and --bpe as the data were "
                        "prepared, or use `headprune translate`, which reads them from prep.json",
                        file=sys.stderr,
                    )
                yield batch

        return watched

    def summarise(self) -> None:
        """Print the numbers of lines, if there were unknown words."""
        if self.unknown:
            print(
                f"warning: {self.unknown} of {self.lines} lines had words that the model does not "
                "know",
                file=sys.stderr,
            )
