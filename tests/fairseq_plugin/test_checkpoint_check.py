"""Checkpoints that are damaged, or whose parts do not fit each other."""

from __future__ import annotations

import random
import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from fairseq.logging import meters
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_plugin.checkpoints import Checkpoint
from headprune.errors import DataError, HeadpruneError
from tests.command import headprune
from tests.fairseq_plugin.checkpoints import PLAN, content, write
from tests.fairseq_plugin.models import SIZES, build


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")
    write(folder / "full.pt")
    write(folder / "remove.pt", plan=PLAN)
    write(folder / "mask.pt", plan=PLAN, form="mask")
    PLAN.save(folder / "plan.json")
    return folder


@pytest.mark.parametrize("name", ["full", "remove", "mask"])
def test_whole_checkpoints_pass(name: str, folder: Path) -> None:
    assert headprune("show", folder / f"{name}.pt").err == ""


@settings(max_examples=100, deadline=None)
@given(
    name=st.sampled_from(["full", "remove", "mask"]),
    flips=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=3),
    bit=st.integers(0, 7),
)
def test_flipped_bits_are_refused_or_harmless(
    name: str, flips: list[float], bit: int, folder: Path
) -> None:
    data = bytearray((folder / f"{name}.pt").read_bytes())
    for place in flips:
        data[int(place * len(data))] ^= 1 << bit
    damaged = folder / "damaged.pt"
    damaged.write_bytes(data)
    try:
        found = Checkpoint.load(damaged)
    except DataError as error:
        assert str(error).startswith(f"{damaged}: ")
        return
    expected = Checkpoint.load(folder / f"{name}.pt")
    assert found.fingerprint == expected.fingerprint
    assert found.options.values == expected.options.values


def test_truncated_files_are_refused(folder: Path) -> None:
    data = (folder / "full.pt").read_bytes()
    lengths = random.Random(0)
    for _ in range(20):
        damaged = folder / "truncated.pt"
        damaged.write_bytes(data[: lengths.randrange(len(data))])
        with pytest.raises(DataError, match=r"truncated\.pt: (corrupt|not a checkpoint)"):
            Checkpoint.load(damaged)


def test_files_that_cannot_be_read_are_not_called_corrupt(tmp_path: Path) -> None:
    loop = tmp_path / "loop.pt"
    loop.symlink_to(loop)
    with pytest.raises(DataError, match=r"loop\.pt: cannot read \(Too many levels of symbolic"):
        Checkpoint.load(loop)
    with pytest.raises(DataError, match="a folder, not a checkpoint file"):
        Checkpoint.load(tmp_path)


def test_files_without_checksums_are_read(folder: Path, tmp_path: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        write(tmp_path / "unsummed.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    expected = Checkpoint.load(folder / "full.pt").fingerprint
    assert Checkpoint.load(tmp_path / "unsummed.pt").fingerprint == expected


def test_files_of_fairseq_before_0_10_are_read(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have torch's older format, and meters of a module that is no longer there."""
    module = ModuleType("fairseq.meters")
    monkeypatch.setitem(sys.modules, "fairseq.meters", module)
    state = content()
    with monkeypatch.context() as renamed:
        for name in ("AverageMeter", "TimeMeter", "StopwatchMeter"):
            meter = getattr(meters, name)
            setattr(module, name, meter)
            renamed.setattr(meter, "__module__", "fairseq.meters")
            state["extra_state"].setdefault("train_meters", {})[name] = meter()
        torch.save(state, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    expected = Checkpoint.load(folder / "full.pt").fingerprint
    assert Checkpoint.load(tmp_path / "old.pt").fingerprint == expected


VALUES = [0, -1, 1, 3, 10**9, 10**20, 2.5, "4", "x", None, True, [], {}, float("nan")]


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(["full", "remove", "mask"]),
    option=st.sampled_from(
        [
            *(f"{side}_{size}" for side in ("encoder", "decoder")
              for size in ("layers", "attention_heads", "embed_dim", "ffn_embed_dim")),
            *("head_plan", "head_form", "head_seed", "no_cross_attention", "arch", "autocast"),
            *("decoder_input_dim", "decoder_output_dim", "max_source_positions"),
        ]
    ),
    value=st.sampled_from(VALUES),
)  # fmt: skip
def test_any_option_is_taken_or_refused_with_one_line(
    name: str, option: str, value: Any, folder: Path
) -> None:
    state = torch.load(folder / f"{name}.pt", weights_only=False)
    setattr(state["args"], option, value)
    changed, output = folder / "changed.pt", folder / "output.pt"
    torch.save(state, changed)
    for command in (
        ("show", changed),
        ("prune", changed, "--plan", folder / "plan.json", "-o", output),
        ("export", changed, "--to", "fairseq", "-o", output),
    ):
        outcome = headprune(*command)
        assert outcome.status == 0 or outcome.err.count("\n") == 1, outcome.err
    output.unlink(missing_ok=True)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), name=st.sampled_from(["full", "remove", "mask"]))
def test_any_tensor_that_does_not_fit_is_named(data: Any, name: str, folder: Path) -> None:
    state = torch.load(folder / f"{name}.pt", weights_only=False)
    weights = state["model"]
    # Any number of words may be right.
    names = [n for n in sorted(weights) if weights[n].numel() and "layers" in n]
    key = data.draw(st.sampled_from([n for n in names if not n.endswith("kept_heads")]))
    tensor = weights[key]
    weights[key] = data.draw(
        st.sampled_from(
            [
                torch.tensor(1.0),
                tensor[:-1],
                tensor[None],
                tensor.long(),
                tensor * float("nan"),
                torch.full_like(tensor, float("-inf")),
                torch.ones(1).expand_as(tensor),
                "tensor",
                tensor.to_sparse(),
            ]
        )
    )
    torch.save(state, folder / "changed.pt")
    with pytest.raises(HeadpruneError, match=key):
        Checkpoint.load(folder / "changed.pt")


def test_fused_projections_of_old_checkpoints_are_pruned_as_split_ones(tmp_path: Path) -> None:
    state = content()
    weights = state["model"]
    for prefix in {name.partition("q_proj")[0] for name in weights if "q_proj" in name}:
        for kind in ("weight", "bias"):
            parts = [weights.pop(f"{prefix}{name}_proj.{kind}") for name in "qkv"]
            weights[f"{prefix}in_proj_{kind}"] = torch.cat(parts)
    torch.save(state, tmp_path / "old.pt")
    write(tmp_path / "new.pt")
    old, new = (Checkpoint.load(tmp_path / name).prune(PLAN) for name in ("old.pt", "new.pt"))
    assert old.fingerprint == new.fingerprint


@pytest.mark.parametrize(
    "options",
    [
        {"decoder_input_dim": 16, "decoder_learned_pos": True},  # fairseq builds without it
        {"decoder_output_dim": 16},
        {"decoder_output_dim": "16"},  # as fairseq's command line stores it
        {"decoder_output_dim": 32, "share_decoder_input_output_embed": True},
        {"encoder_embed_dim": 24, "encoder_learned_pos": True, "encoder_attention_heads": 3},
        {"no_cross_attention": True},
        {"cross_self_attention": True},
    ],
    ids=lambda options: next(iter(options)),
)
def test_models_as_fairseq_builds_them_pass(options: dict[str, Any], tmp_path: Path) -> None:
    args = Namespace(arch="transformer", task="translation", **{**SIZES, **options})
    torch.save({"args": args, "model": build(**vars(args)).state_dict()}, tmp_path / "model.pt")
    assert Checkpoint.load(tmp_path / "model.pt").plan.is_full


def test_a_buffer_without_values_may_be_anything(tmp_path: Path) -> None:
    state = content()
    state["model"]["encoder.embed_positions._float_tensor"] = torch.tensor([float("nan")])
    torch.save(state, tmp_path / "model.pt")
    assert Checkpoint.load(tmp_path / "model.pt").plan.is_full


def test_options_may_lie_in_a_config(tmp_path: Path) -> None:
    state = content(plan=PLAN)
    state["cfg"] = {"model": Namespace(**vars(state.pop("args")))}
    torch.save(state, tmp_path / "model.pt")
    assert Checkpoint.load(tmp_path / "model.pt").plan == PLAN
