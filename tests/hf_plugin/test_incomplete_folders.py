"""Folders whose weights are missing or of another size: no command makes random ones up."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.command import headprune
from tests.hf_plugin.made import WORDS, write_model
from tests.hf_plugin.models import config_of

QUERY = "layer.1.attention.self.query.weight"


def changed(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> Path:
    """Change the weights of a folder."""
    file = folder / "model.safetensors"
    weights = load_file(file)
    change(weights)
    save_file(weights, file, metadata={"format": "pt"})
    return folder


def without_query(weights: dict[str, Tensor]) -> None:
    weights.pop(next(name for name in weights if name.endswith(QUERY)))


def without_norm(weights: dict[str, Tensor]) -> None:
    weights.pop(next(name for name in weights if name.endswith("layer.1.output.LayerNorm.weight")))


def with_a_short_query(weights: dict[str, Tensor]) -> None:
    name = next(name for name in weights if name.endswith(QUERY))
    weights[name] = weights[name][:-1].clone()


@pytest.mark.parametrize("change", [without_query, without_norm, with_a_short_query])
@pytest.mark.parametrize(
    "command",
    [
        ("scores", "--score", "magnitude"),
        ("scores", "--without-labels", "--train", "TEXT", "--score", "taylor"),
        ("vocabulary", "--text", "TEXT"),
    ],
    ids=["scores", "scores without labels", "vocabulary"],
)
def test_weights_that_are_missing_or_of_another_size_are_named(
    command: tuple[str, ...], change: Callable[[dict[str, Tensor]], object], tmp_path: Path
) -> None:
    text = tmp_path / "text.txt"
    text.write_text(" ".join(WORDS) + "\n" + " ".join(WORDS[:5]) + "\n")
    folder = changed(write_model(tmp_path / "model"), change)
    name, *options = (str(text) if word == "TEXT" else word for word in command)
    done = headprune(name, folder, *options, "-o", tmp_path / "out")
    assert done.status == 1 and "Traceback" not in done.err
    expected = "layer.1.output.LayerNorm" if change is without_norm else QUERY
    assert "its files do not hold" in done.err and expected in done.err
    assert not (tmp_path / "out").exists() or not [*(tmp_path / "out").iterdir()]


def test_a_folder_without_weights_is_said_in_one_line(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    for command in ("scores", "translate"):
        options = ("--score", "magnitude") if command == "scores" else ("--input", folder / "x")
        done = headprune(command, folder, *options, "-o", tmp_path / "out")
        assert done.status and "Traceback" not in done.err
        assert "cannot read the weights" in done.err and len(done.err.splitlines()) == 1


def test_a_family_that_is_not_known_is_said_before_its_sizes_and_weights(tmp_path: Path) -> None:
    config = config_of("bert").to_dict() | {
        "num_attention_heads": [1, 2],
        "model_type": "segformer",
    }
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    for command in (("show",), ("scores", "--score", "magnitude", "-o", tmp_path / "out")):
        done = headprune(command[0], folder, *command[1:])
        assert "segformer is not a known family" in done.err, done.err
