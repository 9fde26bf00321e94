"""Files are written completely or not at all, and not into a model's folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headprune import DataError, UsageError
from headprune.files import (
    atomic_path,
    require_writable,
    temporary_name,
    write_text_atomically,
)
from headprune.folders import new_folder, require_outside


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_file_and_its_folders(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "text"
    write_text_atomically(path, "h\u00e4lf\n")
    assert path.read_bytes() == "h\u00e4lf\n".encode()
    assert names(path.parent) == ["text"]


def test_an_old_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("old and longer")
    write_text_atomically(str(path), "new")
    assert path.read_text() == "new"
    assert names(tmp_path) == ["text"]


def test_what_killed_processes_left_of_a_folder_is_removed(tmp_path: Path) -> None:
    left = temporary_name(tmp_path / "out")
    left.mkdir()
    (left / "half").write_text("half")
    other = temporary_name(tmp_path / "other")
    other.mkdir()
    with new_folder(tmp_path / "out") as temporary:
        assert names(tmp_path) == sorted([".out.lock", other.name, temporary.name])
    assert names(tmp_path) == sorted([other.name, "out"])


def test_a_folder_whose_name_begins_with_that_of_another_is_left_alone(tmp_path: Path) -> None:
    with new_folder(tmp_path / "bert.12.5") as first:
        with new_folder(tmp_path / "bert") as second:
            (second / "text").write_text("second")
        (first / "text").write_text("first")
    assert (tmp_path / "bert.12.5" / "text").read_text() == "first"
    assert (tmp_path / "bert" / "text").read_text() == "second"


def test_the_old_file_stands_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("old")
    with atomic_path(path) as temporary:
        temporary.write_text("half")
        assert path.read_text() == "old"
        assert temporary.parent == tmp_path  # else renaming would copy
        temporary.write_text("whole")
    assert path.read_text() == "whole"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_work_that_fails_leaves_the_old_file_alone(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "text"
    path.write_text("old")
    with pytest.raises(error), atomic_path(path) as temporary:
        temporary.write_text("half")
        raise error
    assert path.read_text() == "old"
    assert names(tmp_path) == ["text"]


def test_work_that_fails_leaves_no_new_file(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), atomic_path(tmp_path / "text") as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert names(tmp_path) == []


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    write_text_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"
    assert names(tmp_path) == ["file", "link"]


def test_what_is_no_regular_file_is_not_replaced(tmp_path: Path) -> None:
    # As root, renaming to /dev/null would replace the device; a pipe stands for it here.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, "", ".", "/"):
        with pytest.raises(DataError) as caught:
            write_text_atomically(path, "text")
        assert str(caught.value) == f"{path}: cannot write (it is a folder or a device)"
    assert pipe.is_fifo()
    assert names(tmp_path) == ["pipe"]


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    for path in (tmp_path / "file" / "text", tmp_path / ("n" * 300), tmp_path / ("n" * 250)):
        with pytest.raises(DataError) as caught:
            write_text_atomically(path, "text")
        assert str(caught.value).startswith(f"{path}: cannot write (")
        with pytest.raises(DataError) as caught_before:
            require_writable(path)
        assert str(caught_before.value) == str(caught.value)
    assert names(tmp_path) == ["file"]
    assert (tmp_path / "file").read_text() == "old"


def test_a_file_that_can_be_written_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    for path in (tmp_path / "file", tmp_path / "new", tmp_path / "folder" / "new"):
        require_writable(path)
    assert names(tmp_path) == ["file"]
    assert (tmp_path / "file").read_text() == "old"


@pytest.mark.parametrize("place", ["model", "model/pruned", "other/../model/deep/er", "link"])
def test_places_in_the_models_folder_are_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "model")
    with pytest.raises(UsageError, match=r"lies in the folder of the model, .*model; give another"):
        require_outside(tmp_path / place, tmp_path / "model")
    require_outside(tmp_path / "model-pruned", tmp_path / "model")


def test_temporary_files_follow_no_link_and_have_the_umasks_permissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "precious").write_text("old")
    monkeypatch.setattr(os, "urandom", lambda number: bytes(number))
    planted = temporary_name(tmp_path / "text")
    planted.symlink_to("precious")
    with pytest.raises(DataError, match=r"text: cannot write \(File exists\)"):
        write_text_atomically(tmp_path / "text", "new")
    assert (tmp_path / "precious").read_text() == "old"
    planted.unlink()
    before = os.umask(0o027)
    try:
        write_text_atomically(tmp_path / "text", "new")
    finally:
        os.umask(before)
    assert (tmp_path / "text").stat().st_mode & 0o777 == 0o640


def test_two_writers_of_one_file_do_not_share_a_temporary_file(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "text") as one:
        with atomic_path(tmp_path / "text") as other:
            assert one != other
            other.write_text("other")
        one.write_text("one")
    assert (tmp_path / "text").read_text() == "one"
    assert names(tmp_path) == ["text"]


def test_a_failed_write_leaves_no_folder_behind(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), atomic_path(tmp_path / "a" / "b" / "text"):
        raise RuntimeError
    with pytest.raises(RuntimeError), new_folder(tmp_path / "c" / "d"):
        raise RuntimeError
    assert names(tmp_path) == []


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
import torch
from safetensors.torch import save_file
from headprune.errors import DataError
from headprune.files import atomic_path
from headprune.folders import new_folder

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
tensors = {"weight": torch.zeros(100_000)}
writers = {
    "torch": lambda path: torch.save(tensors, path),
    "safetensors": lambda path: save_file(tensors, path),
    "text": lambda path: path.write_text("a" * 400_000),
}
for name, write in writers.items():
    for place in (atomic_path, new_folder):
        try:
            with place(Path(sys.argv[1]) / "out" / name) as path:
                write(path / name if path.is_dir() else path)
        except DataError as error:
            print(error)
"""


def test_a_disk_that_takes_no_more_is_told_in_one_line(tmp_path: Path) -> None:
    # Python, torch and safetensors each have errors of their own for it.
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, tmp_path], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 6
    expected = re.compile(r"/out/\w+: cannot write \((File too large|the disk .*)\)$")
    assert all(expected.search(line) for line in lines), lines
    assert names(tmp_path) == []


def test_text_that_is_no_unicode(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"text: cannot write \('\\udcff' is no text"):
        write_text_atomically(tmp_path / "text", "caf\udcff")
    assert names(tmp_path) == []
