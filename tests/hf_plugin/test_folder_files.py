"""Only files inside a model's folder are copied."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from transformers import AutoModel

from headprune.errors import DataError
from hf_plugin.folder_files import copy_files, named_as
from tests.command import headprune
from tests.hf_plugin.models import SOME, build


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "out").mkdir()
    folder = tmp_path / "model"
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "vocab.txt").write_text("a")
    (folder / "1_Pooling" / "config.json").write_text("{}")
    (folder / "model.bin").write_text("weights")
    return folder


def copied(folder: Path) -> dict[str, str]:
    out = folder.parent / "out"
    unwanted = named_as("*.bin", "checkpoint-*")
    copy_files(folder, out, wanted=lambda name: not unwanted(name))
    files = (path for path in out.rglob("*") if path.is_file())
    return {str(path.relative_to(out)): path.read_text() for path in files}


def test_regular_files_are_copied_and_links_within_the_folder(folder: Path) -> None:
    (folder / "other.txt").symlink_to("vocab.txt")
    (folder / "linked.bin").symlink_to("../secret")  # not wanted, so not looked at
    (folder / "checkpoint-1").mkdir()
    (folder / "checkpoint-1" / "notes").symlink_to("../../secret")
    expected = {"vocab.txt": "a", "other.txt": "a", "1_Pooling/config.json": "{}"}
    assert copied(folder) == expected
    assert not (folder.parent / "out" / "other.txt").is_symlink()


def test_the_modules_of_encoders_of_sentences_are_copied_whole(folder: Path) -> None:
    modules = [{"path": ""}, {"path": "1_Pooling"}, {"path": "2_Dense"}, {"name": "none"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "2_Dense").mkdir()
    (folder / "2_Dense" / "model.bin").write_text("weights")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.bin").write_text("weights of another form")
    assert {name for name in copied(folder) if "/" in name} == {
        "1_Pooling/config.json",
        "2_Dense/model.bin",
    }
    (folder / "2_Dense" / "link").symlink_to("../../secret")
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(DataError, match="link to a place outside"):
        copied(folder)


@pytest.mark.parametrize(
    "place",
    ["../secret", "{absolute}", "1_Pooling/../../secret", "..", "hop", "missing", "/dev/null"],
)
def test_other_links_are_refused(place: str, folder: Path) -> None:
    (folder / "zzz").symlink_to(place.format(absolute=folder.parent / "secret"))
    if place == "hop":
        (folder / "hop").symlink_to("../secret")
    with pytest.raises(DataError, match=r"(zzz|hop): (a link to a place outside|not a regular)"):
        copied(folder)
    assert "secret" not in [path.name for path in (folder.parent / "out").iterdir()]


def test_a_named_pipe_is_refused_and_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(DataError, match="pipe: not a regular file"):
        copied(folder)


def in_hub_cache(model: Path, cache: Path) -> Path:
    """A folder of huggingface_hub's cache: snapshots consist of links to the repository's blobs."""
    repository = cache / "models--org--name"
    snapshot = repository / "snapshots" / "0123456789abcdef"
    (repository / "blobs").mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for number, path in enumerate(model.iterdir()):
        path.rename(repository / "blobs" / str(number))
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")
    return snapshot


def test_a_snapshot_of_the_hubs_cache_is_pruned_as_a_folder_is(tmp_path: Path) -> None:
    build("bert").save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "vocab.txt").write_text("[PAD]\n[UNK]\n")
    snapshot = in_hub_cache(tmp_path / "model", tmp_path / "hub")
    SOME.save(tmp_path / "plan.json")
    arguments = ("--plan", tmp_path / "plan.json", "-o", tmp_path / "out")
    outcome = headprune("prune", snapshot, *arguments)
    assert (outcome.status, outcome.err) == (0, "")
    assert (tmp_path / "out" / "vocab.txt").read_text() == "[PAD]\n[UNK]\n"
    assert not any(path.is_symlink() for path in (tmp_path / "out").iterdir())
    config = AutoModel.from_pretrained(tmp_path / "out").config
    assert type(config).model_type == "headpruned-bert"

    # A link from there to another repository of the cache, or out of it, is not followed.
    (tmp_path / "hub" / "secret").write_text("secret")
    (snapshot / "notes.txt").symlink_to("../../../secret")
    outcome = headprune("prune", snapshot, *arguments[:3], tmp_path / "again")
    assert outcome.err.startswith(f"error: {snapshot}/notes.txt: a link to a place outside the")
    assert not (tmp_path / "again").exists()
