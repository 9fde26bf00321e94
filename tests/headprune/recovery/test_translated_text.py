"""A model's translations of the training text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from headprune.recovery import translated_text
from headprune.recovery.translated_text import read_translations, translate_texts


def test_an_interrupted_translation_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translated_text, "AT_ONCE", 4)
    asked: list[list[int]] = []

    def translate(numbers: Sequence[int], last: int = 10) -> Iterator[str]:
        asked.append([*numbers])
        for number in numbers:
            if number > last:
                raise KeyboardInterrupt
            yield f"text\u2028{number}" if number else ""

    folder = tmp_path / "translations"
    with pytest.raises(KeyboardInterrupt):
        translate_texts(folder, 10, lambda numbers: translate(numbers, last=5))
    translate_texts(folder, 10, translate)
    assert asked == [[0, 1, 2, 3], [4, 5, 6, 7], [4, 5, 6, 7], [8, 9]]
    assert read_translations(folder, 10) == ["", *(f"text\u2028{n}" for n in range(1, 10))]
    assert sorted(path.name for path in folder.iterdir()) == [
        f"translations.{start}.txt" for start in (0, 4, 8)
    ]
