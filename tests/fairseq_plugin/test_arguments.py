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
from headprune import DataError, HeadPlan, UsageError
from tests.bad_inputs.fairseq_commands import write_checkpoint
from tests.fairseq_plugin import checkpoints
from tests.fairseq_plugin.models import SHAPE, SIZES


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
        arguments.verifying(fail)(str(path))


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
        {"clip_norm": 1.0, "gates": None, "criterion": "cross_entropy"},
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
    arguments.checking(lambda _: None)(cfg)
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
    own = {"_name": "transformer_headpruned"}
    for name in ("head_plan", "autocast", "dropout", "data", "eval_bleu", "lr", "model"):
        overrides = {name: 1} | (own if name in ("head_plan", "autocast") else {})
        arguments.check(Namespace(model_overrides=str(overrides), path=str(path)))


def stock_checkpoint(path: Path, *, kind: str) -> Path:
    """A checkpoint of fairseq's transformer: of fairseq 0.10, of 0.12, or with plain values."""
    state = checkpoints.content()
    if kind != "args":
        options = vars(state.pop("args"))
        model = {**options, "_name": options.pop("arch")}
        task = {"_name": options.pop("task"), "data": options.pop("data")}
        state["cfg"] = {"model": Namespace(**model) if kind == "cfg" else model, "task": task}
    history = [{"num_updates": 1, "lr_scheduler_state": {}}]
    torch.save({**state, "optimizer_history": history}, path)
    return path


@pytest.mark.parametrize("kind", ["args", "cfg", "plain"])
@pytest.mark.parametrize(
    "overrides",
    [
        *({"plan": "half.json"}, {"head_plan": "half.json"}, {"es_heads": "21"}),
        *({"head_form": "mask"}, {"autocast": "bf16"}, {"gates": "ES"}),
        {"plan": "half.json", "_name": "transformer"},
    ],
)
def test_a_model_of_fairseq_is_given_no_plan(
    kind: str, overrides: dict[str, object], tmp_path: Path
):
    """fairseq would ignore it, and the unpruned model translate."""
    ours = checkpoints.write(tmp_path / "ours.pt", plan=checkpoints.PLAN)
    theirs = stock_checkpoint(tmp_path / "theirs.pt", kind=kind)
    name = next(iter(overrides))
    message = rf"theirs.pt is a model of fairseq \(transformer\).* no option '{name}'.*'_name': "
    with pytest.raises(UsageError, match=message) as refused:
        arguments.check(Namespace(model_overrides=str(overrides), path=f"{ours}:{theirs}"))
    assert "\n" not in str(refused.value)
    own = overrides | {"_name": "transformer_headpruned_tiny"}
    for accepted, path in ((own, theirs), ({"autocast": "none"}, theirs)):
        arguments.check(Namespace(model_overrides=str(accepted), path=str(path)))
    if "_name" not in overrides:
        arguments.check(Namespace(model_overrides=str(overrides), path=str(ours)))


@pytest.mark.parametrize("kind", ["args", "cfg", "plain"])
def test_the_name_of_the_model_makes_its_options_count(kind: str, tmp_path: Path):
    path = stock_checkpoint(tmp_path / "model.pt", kind=kind)
    overrides = {"_name": "transformer_headpruned", "es_heads": "21", "autocast": "bf16"}
    cfg = checkpoint_utils.load_checkpoint_to_cpu(str(path), overrides)["cfg"]
    assert cfg.task._name == "translation"
    assert (cfg.model._name, cfg.model.es_heads, cfg.model.autocast) == (
        *("transformer_headpruned", "21", "bf16"),
    )
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path), {**overrides, "plan": "p.json"})
    assert state["cfg"].model.head_plan == "p.json"
    if kind == "args":  # which fairseq reads again to build the model
        assert state["args"].arch == "transformer_headpruned" and state["args"].es_heads == "21"


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
    add = arguments.checking(lambda cfg: None)
    start = {"finetune_from_model": str(path), "save_dir": "save"}
    model = {"_name": "transformer_headpruned_tiny", "decoder_ffn_embed_dim": 48}
    cfg = OmegaConf.create({"checkpoint": start, "model": model})
    with pytest.raises(UsageError, match="encoder-ffn-embed-dim 48 in the checkpoint, 64 here"):
        add(cfg)
    cfg.model.encoder_ffn_embed_dim = 48
    add(cfg)


def resuming(folder: Path, **options: object) -> Namespace:
    """The options of a training that resumes from the last checkpoint of a folder."""
    args = Namespace(arch="transformer_headpruned", **{**SIZES, **options}, save_dir=str(folder))
    ARCH_CONFIG_REGISTRY[args.arch](args)
    return args


@pytest.mark.parametrize("form", ["remove", "mask"])
def test_a_training_resumes_with_the_plan_of_its_checkpoint(form: str, tmp_path: Path):
    """fairseq would train nothing, or end in the optimizer, whose state is of other units."""
    checkpoints.write(tmp_path / "checkpoint_last.pt", plan=checkpoints.PLAN, form=form)
    same, fewer = tmp_path / "same.json", tmp_path / "fewer.json"
    checkpoints.PLAN.save(same)
    HeadPlan(kept={**checkpoints.PLAN.kept, "ES": [(3,), ()]}, heads=SHAPE).save(fewer)
    other = tmp_path / "other.json"
    HeadPlan(kept={**checkpoints.PLAN.kept, "ES": [(0, 3), ()]}, heads=SHAPE).save(other)

    for name in ("plan", "head_plan"):
        arguments.check(resuming(tmp_path, **{name: str(same)}, head_form=form))
    changed = {"remove": "mask", "mask": "remove"}[form]
    message = rf"of another form \(--head-form {form} in its checkpoint, {changed} here\); give ano"
    with pytest.raises(UsageError, match=message):
        arguments.check(resuming(tmp_path, plan=str(same), head_form=changed))
    for given, counts in (
        ({"plan": str(fewer)}, "ES=20 ED=10 DS=03 in its checkpoint, ES=10 ED=10 DS=03 here"),
        ({"plan": str(same), "ef_neurons": "40"}, "ES=20 ED=10 DS=03 in its .*EF=40,40"),
        ({"plan": str(other)}, "other units, as many in each layer: ES=20 ED=10 DS=03"),
        ({}, "ES=20 ED=10 DS=03 in its checkpoint, ES=44 ED=44 DS=44 here"),
    ):
        message = rf"^{tmp_path}: its training was of another plan \({counts}.*give another --save"
        with pytest.raises(UsageError, match=message) as refused:
            arguments.check(resuming(tmp_path, **given))
        assert "\n" not in str(refused.value)


def test_a_training_resumes_with_the_gates_of_its_checkpoint(tmp_path: Path):
    """fairseq would end in the optimizer, whose state is of the parameters that were trained."""
    state = checkpoints.content()
    last = tmp_path / "checkpoint_last.pt"
    criterion = "label_smoothed_cross_entropy_with_l0"
    given = {"gates": "ES,ED", "gates_speed": 100.0, "gates_only": False, "criterion": criterion}

    def check(stored: dict[str, object], **options: object) -> None:
        vars(state["args"]).update(stored)
        torch.save(state, last)
        arguments.check(resuming(tmp_path, **{**given, **options}))

    message = r"^{}: its training was with other gates \({}\); give another --save-dir$"
    with pytest.raises(
        UsageError,
        match=message.format(tmp_path, "--gates off in its checkpoint, ED,ES here"),
    ):
        check({})  # of stock fairseq
    check({"gates": "ES,ED"})  # without the other options
    check(given, gates="ed, es", gates_speed=100)
    for options, difference in (
        (
            {"gates": None, "criterion": "cross_entropy"},
            "--gates ED,ES in its checkpoint, off here",
        ),
        ({"gates": "ES"}, "--gates ED,ES in its checkpoint, ES here"),
        ({"gates_only": True}, "--gates-only off in its checkpoint, on here"),
        ({"gates_speed": 7.0}, "--gates-speed 100 in its checkpoint, 7 here"),
    ):
        with pytest.raises(UsageError, match=message.format(tmp_path, difference)):
            check(given, **options)
        check(given, **options, reset_optimizer=True)
        with pytest.raises(UsageError, match="^--restore-file .* other gates .*; give --finetune"):
            check(given, **options, restore_file=str(last))
    check({"gates": None, "gates_speed": 7.0}, gates=None, criterion="cross_entropy")
    with pytest.raises(UsageError, match="_with_l0: closes gates; give --gates ES,ED,DS"):
        check({"gates": None, "gates_speed": 7.0}, gates=None)


def test_a_training_that_begins_with_another_model_may_prune_it_further(tmp_path: Path):
    last = checkpoints.write(tmp_path / "checkpoint_last.pt")
    plan = tmp_path / "plan.json"
    checkpoints.PLAN.save(plan)
    with pytest.raises(UsageError, match="another plan"):
        arguments.check(resuming(tmp_path, plan=str(plan)))
    arguments.check(resuming(tmp_path, plan=str(plan), reset_optimizer=True))
    restored = {"plan": str(plan), "restore_file": str(last)}
    with pytest.raises(UsageError, match="^--restore-file .*another plan .*; give --finetune-from"):
        arguments.check(resuming(tmp_path, **restored))
    arguments.check(resuming(tmp_path, **restored, reset_optimizer=True))
    elsewhere = tmp_path / "elsewhere"
    arguments.check(resuming(elsewhere, plan=str(plan), finetune_from_model=str(last)))
    arguments.check(resuming(tmp_path))  # of stock fairseq, with all units


def test_the_plan_in_a_configuration_file_is_compared_too(tmp_path: Path):
    checkpoints.write(tmp_path / "checkpoint_last.pt", plan=checkpoints.PLAN)
    checkpoints.PLAN.save(tmp_path / "plan.json")
    add = arguments.checking(lambda cfg: None)
    model = {"_name": "transformer_headpruned", **SIZES, "plan": str(tmp_path / "plan.json")}
    cfg = OmegaConf.create({"checkpoint": {"save_dir": str(tmp_path)}, "model": model})
    add(cfg)
    cfg.model.ds_heads = "01"
    with pytest.raises(UsageError, match="another plan .*DS=03 in its checkpoint, .*DS=01 here"):
        add(cfg)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_training_in_half_precision_needs_a_gpu(precision: str) -> None:
    args = Namespace(optimizer="adam", max_update=0, cpu=True, **{precision: True})
    with pytest.raises(UsageError, match=f"--{precision}: training with it needs a GPU"):
        arguments.check(args)
    arguments.check(Namespace(**vars(args), **{f"memory_efficient_{precision}": True}))
    arguments.check(Namespace(optimizer="adam", cpu=True, **{precision: True}))  # translation
