"""A trained checkpoint as the baseline of a study: copied, halved, or refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_plugin.baseline_model import copy_baseline
from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.loading import trained_on
from headprune import DataError, HeadPlan, UsageError
from studies import half_precision
from tests.fairseq_plugin import checkpoints
from tests.fairseq_plugin.conftest import assert_same, generate
from tests.fairseq_plugin.models import SIZES, dictionary

FLAGS = [
    "--arch=transformer_headpruned",
    *(f"--{name.replace('_', '-')}={value}" for name, value in SIZES.items()),
]
TINY = ["--arch=transformer_headpruned_tiny", "--share-all-embeddings"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with the dictionaries of the tiny models."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for language in ("en", "de"):
        dictionary().save(str(folder / f"dict.{language}.txt"))
    return folder


def written(path: Path, **options: Any) -> Path:
    state = checkpoints.content()
    vars(state["args"]).update({"source_lang": "en", "target_lang": "de", **options})
    torch.save(state, path)
    return path


def copied(path: Path, data: Path, *, flags: list[str] = FLAGS) -> Path:
    model = path.with_name("model.pt")
    copy_baseline(path, flags, data=data, languages=("en", "de"), model=model)
    return model


def test_a_copy_translates_as_the_checkpoint_and_can_be_pruned(
    full: Path, corpus: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model.pt"
    copy_baseline(full, TINY, data=corpus, languages=("en", "de"), model=model)
    copy, original = Checkpoint.load(model), Checkpoint.load(full)
    assert copy.state["last_optimizer_state"] is None
    assert copy.fingerprint == original.fingerprint
    facts = json.loads(model.with_suffix(".json").read_text())
    assert facts == {"parameters": original.parameters, "fingerprint": original.fingerprint}
    assert_same(generate(corpus, f"--path={full}"), generate(corpus, f"--path={model}"))


def test_a_checkpoint_of_stock_fairseq_gets_the_options_of_the_plugin(
    data: Path, tmp_path: Path
) -> None:
    copy = Checkpoint.load(copied(written(tmp_path / "stock.pt"), data))
    assert copy.form == "remove" and copy.plan.is_full


@pytest.mark.parametrize(
    ("options", "flags", "message"),
    [
        ({}, [*FLAGS, "--activation-fn=gelu"], "--activation-fn relu in the checkpoint, gelu here"),
        ({}, [*FLAGS, "--share-all-embeddings"], "separate embeddings in the checkpoint"),
        ({}, [*FLAGS, "--decoder-output-dim=16"], "--decoder-output-dim 32 in the checkpoint, 16"),
        (
            {"encoder_learned_pos": True, "max_source_positions": 64},
            [*FLAGS, "--encoder-learned-pos", "--max-source-positions=32"],
            "--max-source-positions 64 in the checkpoint, 32 here",
        ),
        ({"source_lang": "de", "target_lang": "en"}, FLAGS, "translates de-en, the data are en-de"),
    ],
)
def test_another_model_is_refused(
    options: dict[str, str], flags: list[str], message: str, data: Path, tmp_path: Path
) -> None:
    path = written(tmp_path / "other.pt", **options)
    with pytest.raises(UsageError, match=f"baseline_model: {re.escape(str(path))}.*{message}"):
        copied(path, data, flags=flags)
    assert not path.with_name("model.pt").exists()


def test_a_pruned_model_and_another_vocabulary_are_refused(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "pruned.pt"
    Checkpoint.load(written(path)).prune(checkpoints.PLAN).save(path)
    with pytest.raises(UsageError, match="pruned.pt is pruned already; give the unpruned model"):
        copied(path, data)

    path = written(tmp_path / "other.pt", data=str(tmp_path))
    words = dictionary()
    words.symbols[-1], words.symbols[-2] = words.symbols[-2], words.symbols[-1]
    for language in ("en", "de"):
        words.save(str(tmp_path / f"dict.{language}.txt"))
    with pytest.raises(UsageError, match="was trained with another vocabulary"):
        copied(path, data)
    for language in ("en", "de"):
        dictionary(5).save(str(data / f"dict.{language}.txt"))
    with pytest.raises(DataError, match=r"dictionary and width are \(24, 32\)"):
        copied(written(tmp_path / "large.pt"), data)


@pytest.mark.parametrize("holder", ["args", "cfg"])
def test_old_and_small_checkpoints_are_halved_too(holder: str, tmp_path: Path) -> None:
    state = checkpoints.content()
    options = state.pop("args")
    options.data, options.finetune_from_model = "/home/me/bin", "/home/me/start.pt"
    if holder == "cfg":
        state |= {"args": None, "cfg": {"model": options, "task": vars(options)}}
    else:
        state |= {"args": options, "cfg": None, "extra_state": None}
    torch.save(state, tmp_path / "model.pt")
    half_precision.main([str(tmp_path / "model.pt"), "-o", str(tmp_path / "half.pt")])
    assert b"/home/me" not in (tmp_path / "half.pt").read_bytes()
    Checkpoint.load(tmp_path / "model.pt").prune(checkpoints.PLAN).save(tmp_path / "pruned.pt")
    with pytest.raises(UsageError, match="is pruned; give the unpruned baseline"):
        half_precision.main([str(tmp_path / "pruned.pt"), "-o", str(tmp_path / "no.pt")])


def test_half_precision_destroys_no_baseline(tmp_path: Path) -> None:
    model, link = written(tmp_path / "model.pt"), tmp_path / "link.pt"
    link.symlink_to(model)
    content = model.read_bytes()
    for output in (model, link):
        with pytest.raises(UsageError, match="this file is read too; give another name"):
            half_precision.main([str(model), "-o", str(output)])
    assert model.read_bytes() == content

    state = torch.load(model)
    name = next(name for name in state["model"] if name.endswith("fc1.weight"))
    state["model"][name][0, 0] = 1e5
    torch.save(state, model)
    with pytest.raises(DataError, match=f"model.pt: {name} has weights beyond float16's 65504"):
        half_precision.main([str(model), "-o", str(tmp_path / "half.pt")])
    assert not (tmp_path / "half.pt").exists()


def test_half_precision_keeps_the_model_and_names_no_folder(
    full: Path, corpus: Path, tmp_path: Path
) -> None:
    path = tmp_path / "half.pt"
    half_precision.main([str(full), "-o", str(path)])
    whole, half = Checkpoint.load(full), Checkpoint.load(path)
    assert half.parameters == whole.parameters  # tied weights are still tied
    for name, weight in half.state["model"].items():
        torch.testing.assert_close(weight.float(), whole.state["model"][name].half().float())
    content = path.read_bytes()
    for folder in (full.parent, corpus, Path(__file__).parents[2]):
        assert str(folder).encode() not in content
    model = tmp_path / "model.pt"
    copy_baseline(path, TINY, data=corpus, languages=("en", "de"), model=model)
    assert_same(generate(corpus, f"--path={path}"), generate(corpus, f"--path={model}"))
    # Data of others lie in the current folder; the file names none, the copy its own.
    assert trained_on(Checkpoint.load(model)) == corpus
    with pytest.raises(UsageError, match="does not name the data that it was trained on"):
        trained_on(half)
    pruned = Checkpoint.load(model).prune(HeadPlan.full(whole.shape))
    assert pruned.parameters == whole.parameters
