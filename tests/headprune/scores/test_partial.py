"""Parts of scores, which a command that was killed resumes."""

from __future__ import annotations

from pathlib import Path

import pytest

from headprune.scores.partial import Parts, partial_results


@pytest.mark.parametrize(
    ("seed", "expected"), [(1, '{"seed": 1}\n{"part": 1}\n'), (2, '{"seed": 2}\n')]
)
def test_a_file_is_replaced_whole(seed: int, expected: str, tmp_path: Path) -> None:
    """A command that is killed while it writes leaves the file as it was."""
    file, link = tmp_path / "shapley.unfinished.jsonl", tmp_path / "link"
    before = '{"seed": 1}\n{"part": 1}\n{"part'
    file.write_text(before)
    link.hardlink_to(file)
    with pytest.raises(KeyboardInterrupt), partial_results(tmp_path):
        Parts("shapley", {"seed": seed})
        raise KeyboardInterrupt
    assert file.read_text() == expected
    assert link.read_text() == before
