"""Tests of the lock that keeps two commands from working in one folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headprune.errors import DataError, UsageError
from headprune.folders import new_folder, scratch_folder
from headprune.locks import NAME, locked_folder
from tests.command import headprune

HOLDER = """
import sys
from pathlib import Path
from headprune.locks import locked_folder

with locked_folder(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    """Start a process that holds the folder's lock until its standard input is closed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    return process


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with holder(folder) as process:
        with pytest.raises(UsageError) as caught, locked_folder(folder):
            raise AssertionError
        assert f"out: another command is working there (process {process.pid}" in str(caught.value)
        process.kill()
        process.wait()
    assert (folder / NAME).exists()
    with locked_folder(folder):
        pass
    assert not (folder / NAME).exists()


def test_a_folder_is_left_only_if_something_was_written(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), locked_folder(tmp_path / "a" / "b"):
        raise RuntimeError
    assert not (tmp_path / "a").exists()
    with pytest.raises(RuntimeError), locked_folder(tmp_path / "a" / "b"):
        (tmp_path / "a" / "b" / "half").write_text("half")
        raise RuntimeError
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["half"]


def test_a_lock_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("old")
    (tmp_path / NAME).symlink_to("precious")
    with pytest.raises(DataError, match="cannot write"), locked_folder(tmp_path):
        raise AssertionError
    assert (tmp_path / "precious").read_text() == "old"


def test_a_new_folder_is_written_by_one_process(tmp_path: Path) -> None:
    with new_folder(tmp_path / "out") as first:
        (first / "file").write_text("first")
        refused = pytest.raises(UsageError, match="out: another command is working there")
        with refused, new_folder(tmp_path / "out"):
            raise AssertionError
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_scratch_folders_of_killed_processes_are_removed(tmp_path: Path) -> None:
    (tmp_path / "work.killed" / "model").mkdir(parents=True)
    with scratch_folder(tmp_path) as one:
        assert not one.exists()
        one.mkdir()
        assert [path.name for path in tmp_path.iterdir()] == [one.parent.name]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        ("compare", "{model}", "-o", "{out}"),
        ("iterate", "{model}", "--percent", "50", "-o", "{out}"),
        ("scores", "{model}", "-o", "{out}"),
        ("glue", "-o", "{out}"),
    ],
    ids=lambda command: command[0],
)
def test_commands_end_at_once_in_a_folder_where_another_works(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "model.pt").write_text("not read before the folder is locked")
    places = {"{model}": str(tmp_path / "model.pt"), "{out}": str(tmp_path / "out")}
    with holder(tmp_path / "out") as process:
        outcome = headprune(*(places.get(part, part) for part in command))
        assert process.stdin is not None
        process.stdin.close()
    assert outcome.status == 2
    assert "out: another command is working there (process" in outcome.err
    assert len(outcome.err.splitlines()) == 1
