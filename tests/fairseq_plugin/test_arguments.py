"""Checkpoints and overrides that fairseq's commands are given, checked in this process."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.models import ARCH_CONFIG_REGISTRY
from omegaconf import OmegaConf

import fairseq_plugin  # noqa: F401  (changes fairseq's loading)
from fairseq_plugin import arguments
from headprune import DataError, UsageError
from tests.bad_inputs.fairseq_commands import write_checkpoint
from tests.fairseq_plugin import checkpoints
from tests.fairseq_plugin.models import SIZES


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("truncated", "corrupt or truncated"),
        ("damaged", "the checksum of .* in it does not match"),
        ("unsafe", "refused: it holds objects other than weights"),
        ("whole", "not a checkpoint of fairseq"),  # but one of something else
    ],
)
def test_fairseq_loads_no_bad_checkpoint(kind: str, message: str, tmp_path: Path):
    write_checkpoint(tmp_path, kind=kind)
    with pytest.raises(DataError, match=message):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "model.pt"), {})
    assert not (tmp_path / "executed").exists()


def test_a_sound_checkpoint_of_another_model_keeps_the_error_of_loading_it(tmp_path: Path):
    def fail(path: str) -> None:
        raise ValueError("the error of the model's own code")

    path = tmp_path / "model.pt"
    torch.save({"model": {"w": torch.zeros(2)}, "args": Namespace(arch="lstm")}, path)
    with pytest.raises(ValueError, match="the error of the model's own code"):
        arguments._verifying(fail)(str(path))


@pytest.mark.parametrize("text", ["['a']", "{1: 2}", "{'a'", "__import__('os')", "(" * 500])
def test_overrides_are_a_dictionary(text: str):
    with pytest.raises(UsageError, match="--model-overrides: .* give a dictionary"):
        arguments.check(Namespace(model_overrides=text))
    arguments.check(Namespace(model_overrides="{'head_seed': 2}"))


def test_gates_need_the_criterion_that_closes_them():
    with pytest.raises(UsageError, match="--gates ES: --criterion cross_entropy does not close"):
        arguments.check(Namespace(gates="ES", criterion="cross_entropy"))
    arguments.check(Namespace(gates="ES", criterion="label_smoothed_cross_entropy_with_l0"))


def test_one_warning_says_that_gates_and_weights_are_clipped_together(
    capsys: pytest.CaptureFixture[str],
):
    arguments._warn_once.cache_clear()
    given = {"gates": "ES", "criterion": "label_smoothed_cross_entropy_with_l0"}
    for options in (
        {},
        {"clip_norm": 0.0, "gates_only": False},
        {"clip_norm": 1.0, "gates_only": True},
        {"clip_norm": 1.0, "gates": None},
    ):
        arguments.check(Namespace(**{**given, **options}))
    assert capsys.readouterr().err == ""
    for _ in range(2):
        arguments.check(Namespace(**given, clip_norm=0.5))
    cfg = OmegaConf.create(
        {
            "checkpoint": {},
            "model": {"gates": "ES"},
            "criterion": {"_name": given["criterion"]},
            "optimization": {"clip_norm": 0.5},
        }
    )
    arguments._checking(lambda _: None)(cfg)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: --clip-norm 0.5 clips the gradients of gates and weights")


def test_a_resumed_fine_tuning_does_not_need_its_first_checkpoint(tmp_path: Path):
    args = Namespace(finetune_from_model=str(tmp_path / "gone.pt"), save_dir=str(tmp_path))
    with pytest.raises(DataError, match="--finetune-from-model: .*gone.pt: no such file"):
        arguments.check(args)
    (tmp_path / "checkpoint_last.pt").touch()
    arguments.check(args)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("head_pla", "'head_plan'"), ("encoder_layer", "'encoder_layers'"), ("dat", "'data'")],
)
def test_an_override_that_the_model_does_not_have_is_refused(name: str, hint: str, full: Path):
    args = Namespace(model_overrides=f"{{{name!r}: 1}}", path=str(full))
    with pytest.raises(UsageError, match=f"has no option '{name}'; did you mean {hint}?"):
        arguments.check(args)


@pytest.mark.parametrize("checkpoint", ["full", "stock"])
def test_overrides_of_the_model_the_task_and_groups_are_known(
    checkpoint: str, request: pytest.FixtureRequest
):
    path = request.getfixturevalue(checkpoint)
    for name in ("head_plan", "autocast", "dropout", "data", "eval_bleu", "lr", "model"):
        arguments.check(Namespace(model_overrides=f"{{{name!r}: 1}}", path=str(path)))


def training(path: Path, *, flag: str = "finetune_from_model", **options: object) -> Namespace:
    """The options of a training that begins with a checkpoint, after fairseq has read them."""
    start = {"save_dir": str(path.parent / "save"), flag: str(path)}
    args = Namespace(arch="transformer_headpruned", **{**SIZES, **options}, **start)
    ARCH_CONFIG_REGISTRY[args.arch](args)
    return args


@pytest.mark.parametrize(
    ("stored", "given", "message"),
    [
        (
            *({"share_all_embeddings": True}, {}),
            "--share-all-embeddings in the checkpoint, separate embeddings here",
        ),
        (
            *({}, {"share_decoder_input_output_embed": True}),
            "separate embeddings in the checkpoint, --share-decoder-input-output-embed here",
        ),
        ({}, {"activation_fn": "gelu"}, "--activation-fn relu in the checkpoint, gelu here"),
        (
            *({"encoder_normalize_before": True}, {"decoder_layers": 3}),
            "--encoder-normalize-before on in the checkpoint, off here; "
            "--decoder-layers 2 in the checkpoint, 3 here. Give the options",
        ),
    ],
)
@pytest.mark.parametrize("flag", ["finetune_from_model", "restore_file"])
def test_a_training_has_the_models_options_of_its_first_checkpoint(
    stored: dict[str, object],
    given: dict[str, object],
    message: str,
    flag: str,
    tmp_path: Path,
):
    """Most of these change neither names nor shapes of weights: fairseq would train on silently."""
    state = checkpoints.content()
    vars(state["args"]).update(stored)
    torch.save(state, tmp_path / "model.pt")
    with pytest.raises(UsageError, match=rf"--{flag.replace('_', '-')}: .*: {message}"):
        arguments.check(training(tmp_path / "model.pt", flag=flag, **given))
    same = {"share_decoder_input_output_embed": False, **stored, "dropout": 0.3}
    arguments.check(training(tmp_path / "model.pt", flag=flag, **same))


def test_options_in_a_configuration_file_are_compared_too(tmp_path: Path):
    path = checkpoints.write(tmp_path / "model.pt")
    add = arguments._checking(lambda cfg: None)
    start = {"finetune_from_model": str(path), "save_dir": "save"}
    model = {"_name": "transformer_headpruned_tiny", "decoder_ffn_embed_dim": 48}
    cfg = OmegaConf.create({"checkpoint": start, "model": model})
    with pytest.raises(UsageError, match="encoder-ffn-embed-dim 48 in the checkpoint, 64 here"):
        add(cfg)
    cfg.model.encoder_ffn_embed_dim = 48
    add(cfg)
