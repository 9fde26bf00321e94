"""A model's translations of the training text, for sequence-level distillation.

Kim and Rush (2016): the student learns from the teacher's translations of the training text in the
place of the references.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from headprune.files import write_text_atomically
from headprune.scores.compute import Watch, unwatched

AT_ONCE = 2000
"""Number of texts in a file of translations; an interrupted run resumes after its last file."""


def translate_texts(
    folder: Path,
    count: int,
    translate: Callable[[Sequence[int]], Iterable[str]],
    *,
    watch: Watch = unwatched,
) -> None:
    """Write the translations of a training set to files in ``folder``, for ``read_translations``.

    Files that lie there stay: they have to be of the same texts, and of the same model with the
    same settings of the search.

    Args:
        folder: the folder of the files; made if it is missing.
        count: the number of texts.
        translate: gives the translations of the texts with these numbers, each without line breaks.
        watch: wraps the parts of the training set, for a progress bar.
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts = _parts(folder, count)
    for path, numbers in watch(iter(parts), len(parts), "translating the training set"):
        if not path.is_file():
            write_text_atomically(path, "".join(f"{text}\n" for text in translate(numbers)))


def read_translations(folder: Path, count: int) -> list[str]:
    """The translations of a training set of ``count`` texts, in its order."""
    return [
        line
        for path, _ in _parts(folder, count)
        # Not splitlines, as texts may hold other ends of lines.
        for line in path.read_text(encoding="utf-8").split("\n")[:-1]
    ]


def _parts(folder: Path, count: int) -> list[tuple[Path, range]]:
    """The files, and the numbers of the texts in each."""
    return [
        (folder / f"translations.{start}.txt", range(start, min(start + AT_ONCE, count)))
        for start in range(0, count, AT_ONCE)
    ]
