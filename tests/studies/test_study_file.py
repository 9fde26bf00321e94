"""What may stand in a study's YAML file, and what is refused in one clear line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from headprune import DataError, UsageError
from headprune.select import at_random
from studies.fairseq_flags import require_good_flags
from studies.find import find_study, load_any
from studies.jobs import jobs_of
from studies.plans import CONTROL
from studies.plugin import schedule
from studies.study import Study, load_study

STUDIES = Path(__file__).parents[2] / "studies"

MINIMAL: dict[str, Any] = {
    "name": "small",
    "data": {"name": "d", "pair": "en-de", "script": "prepare.sh", "args": {"train": 10}},
    "arch": "transformer_headpruned_tiny",
    "train": {"max-epoch": 2},
    "finetune": {"max-epoch": 1},
    "plans": [{"percent": 50}],
}


def written(tmp_path: Path, **changes: Any) -> Path:
    content = {**MINIMAL, **changes}
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump({k: v for k, v in content.items() if v is not ...}))
    return path


def load(tmp_path: Path, **changes: Any) -> Any:
    return load_study(written(tmp_path, **changes))


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_study_that_is_shipped_is_valid_and_named_like_its_file(path: Path) -> None:
    study = load_any(path)
    assert study.name == path.stem
    assert jobs_of(study, list(study.tables)[:1], out=Path("out"), base=Path("base"))
    if isinstance(study, Study):
        pytest.importorskip("fairseq", reason="fairseq knows its flags")
        require_good_flags(study, path)


DISTILLED = {
    "max-epoch": 1,
    "criterion": "label_smoothed_cross_entropy_with_distillation",
    "distill-from": "baseline",
    "distill-weight": 0.25,
}


GATES = {"percent": 50, "method": "l0-gates"}


def test_gates_choose_the_heads_in_a_fine_tuning(tmp_path: Path) -> None:
    study = load(tmp_path, plans=[GATES, {**GATES, "components": ["ES"]}, {"percent": 25}])
    _, gates, of_encoder, quarter = study.rows
    assert (gates.label, of_encoder.label) == ("50% l0-gates", "50% ES l0-gates")
    assert gates.select == "l0-gates" and of_encoder.components == ("ES",)
    with pytest.raises(UsageError, match="50% l0-gates: the heads are known after the training"):
        gates.plan(study.shape, seed=1)
    study = replace(study, before_finetune=True)
    models = study.models([gates, quarter])
    assert [(model.kind, model.folder) for model in models if model.seed == 1] == [
        ("baseline", "baseline"),
        ("control", "finetuned/control/seed1"),
        ("pruned", "gates/50pct-l0-gates/seed1"),
        ("pruned", "finetuned/25pct/seed1"),
        ("before-finetune", "before-finetune/25pct/seed1"),
    ]
    assert {model.finetune for model in models if model.kind == "pruned"} == {"1ep"}


def test_fine_tunings_may_have_the_baseline_as_their_teacher(tmp_path: Path) -> None:
    study = load(tmp_path, finetune=DISTILLED)
    assert study.finetune.distilled and not study.train.distilled
    assert "--distill-from" not in study.finetune.flags  # its path is known to the run folder
    flags = study.finetune.flags
    assert flags[flags.index("--distill-weight") + 1] == "0.25"


def test_what_is_left_out_is_filled_in(tmp_path: Path) -> None:
    study = load(tmp_path)
    assert study.seeds == (1, 2, 3)
    assert [row.label for row in study.rows] == ["control", "50%"]
    assert study.finetune.length == "1ep"
    assert study.data.args == ("--train", "10")
    assert study.resources["finetune"].threads == 1
    # Without it fairseq drops the last sentences of the test set.
    flags = study.generate_flags
    assert flags[flags.index("--required-batch-size-multiple") + 1] == "1"


def test_keys_of_the_study_are_no_flags(tmp_path: Path) -> None:
    study = load(tmp_path, runner="translation")
    for flags in (study.train.flags, study.finetune.flags, study.generate_flags):
        assert "--runner" not in flags


def test_flags_are_written_as_on_the_command_line(tmp_path: Path) -> None:
    train = {"max-epoch": 2, "share-all-embeddings": True, "no-cross-attention": False, "lr": 0.003}
    flags = load(tmp_path, train=train).train.flags
    assert "--share-all-embeddings" in flags
    assert "--no-cross-attention" not in flags
    assert flags[flags.index("--lr") + 1] == "0.003"


def test_a_given_value_replaces_a_default(tmp_path: Path) -> None:
    study = load(
        tmp_path,
        train={"max-epoch": 2, "num-workers": 4},
        resources={"finetune": {"threads": 4, "gpu": 1}},
    )
    flags = study.train.flags
    assert flags.count("--num-workers") == 1
    assert flags[flags.index("--num-workers") + 1] == "4"
    assert study.resources["finetune"].threads == 4
    assert study.resources["finetune"].gpu == 1
    assert study.resources["finetune"].mem_mb > 0


FLAGS = {
    "multi30k": (
        "--required-batch-size-multiple 8 --log-format simple --log-interval 50 "
        "--no-epoch-checkpoints --num-workers 0 --max-epoch 10 --max-tokens 2048 --optimizer adam "
        "--adam-betas (0.9,_0.98) --lr 4e-3 --lr-scheduler polynomial_decay --warmup-updates 500 "
        "--total-num-update 2530 --clip-norm 1.0 --criterion label_smoothed_cross_entropy "
        "--label-smoothing 0.1",
        "--required-batch-size-multiple 8 --log-format simple --log-interval 50 "
        "--no-epoch-checkpoints --num-workers 0 --max-epoch 1 --max-tokens 2048 --optimizer adam "
        "--adam-betas (0.9,_0.98) --lr 1e-3 --lr-scheduler polynomial_decay --warmup-updates 50 "
        "--total-num-update 253 --end-learning-rate 0 --clip-norm 1.0 "
        "--criterion label_smoothed_cross_entropy --label-smoothing 0.1",
        "--required-batch-size-multiple 1 --beam 5 --batch-size 64 --max-tokens 4000",
    ),
    "demo": (
        "--required-batch-size-multiple 1 --log-format simple --log-interval 50 "
        "--no-epoch-checkpoints --num-workers 0 --max-epoch 5 --max-tokens 2048 --optimizer adam "
        "--adam-betas (0.9,_0.98) --lr 3e-3 --lr-scheduler inverse_sqrt --warmup-updates 200 "
        "--clip-norm 1.0 --criterion label_smoothed_cross_entropy --label-smoothing 0.1",
        "--required-batch-size-multiple 1 --log-format simple --log-interval 50 "
        "--no-epoch-checkpoints --num-workers 0 --max-update 50 --max-tokens 2048 --optimizer adam "
        "--adam-betas (0.9,_0.98) --lr 1e-3 --lr-scheduler polynomial_decay --warmup-updates 10 "
        "--total-num-update 50 --end-learning-rate 0 --clip-norm 1.0 "
        "--criterion label_smoothed_cross_entropy --label-smoothing 0.1",
        "--required-batch-size-multiple 1 --beam 4 --batch-size 128",
    ),
    "tiny": (
        "--required-batch-size-multiple 1 --log-format simple --log-interval 50 "
        "--no-epoch-checkpoints --num-workers 0 --max-epoch 2 --max-tokens 1000 --optimizer adam "
        "--lr 3e-3",
        "--required-batch-size-multiple 1 --log-format simple --log-interval 50 "
        "--no-epoch-checkpoints --num-workers 0 --max-epoch 1 --max-tokens 1000 --optimizer adam "
        "--lr 1e-3",
        "--required-batch-size-multiple 1 --beam 2 --batch-size 64",
    ),
}
"""The flags of fairseq that the results in docs/results were made with. A space in a value is
written as `_`."""

UPDATES_PER_EPOCH = {"multi30k": 253}


@pytest.mark.parametrize("name", FLAGS)
def test_shares_and_shapes_left_out_change_nothing_that_is_run(name: str) -> None:
    study = load_study(STUDIES / f"{name}.yaml")

    def resolved(flags: tuple[str, ...]) -> str:
        numbers = schedule.resolve(flags, updates_per_epoch=lambda: UPDATES_PER_EPOCH[name])
        return " ".join(number.replace(" ", "_") for number in numbers)

    found = (resolved(study.train.flags), resolved(study.finetune.flags))
    assert (*found, " ".join(study.generate_flags)) == FLAGS[name]
    heads, layers = {"multi30k": (8, 6), "demo": (8, 3), "tiny": (4, 2)}[name]
    assert study.shape == dict.fromkeys(("ES", "ED", "DS"), (heads,) * layers)
    length = {"multi30k": "1ep", "demo": "50up", "tiny": "1ep"}[name]
    assert study.finetune.length == length


def test_only_numbers_that_depend_on_the_data_stay_open(tmp_path: Path) -> None:
    known = {"max-update": 40, "warmup-updates": "10%", "total-num-update": "100%"}
    open_ = {"max-epoch": 2, "warmup-updates": "10%"}
    study = load(tmp_path, train=open_, finetune=known)
    assert study.finetune.flags[-5:] == ("40", "--total-num-update", "40", "--warmup-updates", "4")
    assert study.train.flags[-1] == "10%"
    half = load(tmp_path, finetune={"max-update": "0.5 epochs"}).finetune
    assert half.length == "0.5ep" and half.flags[-1] == "0.5 epochs"


def test_a_shape_may_be_given_where_it_is_the_architectures(tmp_path: Path) -> None:
    shape = {"ES": "4x3", "ED": "4x2", "DS": "4x2"}
    study = load(tmp_path, shape=shape, model={"encoder-layers": 3})
    assert study.shape == {"ES": (4, 4, 4), "ED": (4, 4), "DS": (4, 4)}
    with pytest.raises(DataError) as caught:
        load(tmp_path, shape=shape)
    assert str(caught.value).endswith(
        "study.yaml: shape: ES=4x3 ED=4x2 DS=4x2, but the architecture transformer_headpruned_tiny "
        "with the flags of `model` has ES=4x2 ED=4x2 DS=4x2; leave `shape` out"
    )


def test_rows_choose_heads_as_they_say(tmp_path: Path) -> None:
    study = load(
        tmp_path,
        plans=[
            {"percent": 25},
            {"percent": 75, "at_least": 1},
            {"keep": {"ES": "31", "DS": 2}, "label": "few"},
            {"prune": "top 1", "components": ["ED"]},
        ],
    )
    plans = {row.label: row.plan(study.shape, seed=2) for row in study.rows}
    assert plans["control"].is_full
    assert plans["25%"].percent_pruned == 25
    assert min(n for counts in plans["75% at least 1"].counts.values() for n in counts) == 1
    assert plans["few"].counts["ES"] == (3, 1)
    assert plans["few"].counts["ED"] == (4, 4)
    assert sum(plans["few"].counts["DS"]) == 2
    assert str(plans["top 1 ED"]) == "ES=44 ED=40 DS=44"
    assert study.row("25pct").select == "random"
    assert study.row("top-1-ED").select == "location"
    assert CONTROL.select == "none"


def test_without_control_the_unpruned_plan_is_still_known(tmp_path: Path) -> None:
    study = load(tmp_path, control=False)
    assert [row.label for row in study.rows] == ["50%"]
    assert study.plan("control", seed=1).is_full


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bogus": 1}, "unknown key: bogus"),
        ({"train": ..., "arch": ...}, "missing key: arch"),
        (
            {"arch": "transformer_iwslt_de_en"},
            "arch: transformer_iwslt_de_en is none of the plugin's",
        ),
        ({"data": {"name": "d", "script": "s"}}, "missing key: data.pair"),
        ({"data": {**MINIMAL["data"], "name": "a:b"}}, "data.name: 'a:b': signatures name it"),
        ({"data": {**MINIMAL["data"], "extra": 1}}, "unknown key: data.extra"),
        ({"data": {**MINIMAL["data"], "pair": "english"}}, "data.pair: 'english'"),
        (
            {"data": {**MINIMAL["data"], "args": {"pair": "de-en"}}},
            "data.args.pair: 'de-en', but data.pair is en-de",
        ),
        ({"finetune": {"max-epoch": 1, "max-update": 5}}, "finetune: max-epoch and max-update are"),
        ({"data": {**MINIMAL["data"], "args": {"out": "x"}}}, "data.args.out: not to be set here"),
        ({"plans": []}, "plans: at least one"),
        ({"plans": [{"percent": 50, "keep": {"ES": "44"}}]}, "got percent and keep"),
        ({"plans": [{"label": "x"}]}, "got none of them"),
        ({"plans": [{"percent": 120}]}, "plans[1].percent: a percentage between 0 and 100"),
        ({"plans": [{"percent": 50}, {"percent": 50.0}]}, "plans[2]: '50%' is the same row"),
        ({"plans": [{"percent": 0, "label": "control"}]}, "plans[1]: 'control' is the same row"),
        ({"plans": [{"keep": {"ES": "444"}}]}, "plans[1]: ES: "),
        ({"plans": [{"keep": {"ES": 888444}}]}, "plans[1].keep.ES: 888444"),
        ({"plans": [{"keep": {"XX": "44"}}]}, "unknown key: plans[1].keep.XX"),
        ({"plans": [{"prune": "top 3"}]}, "plans[1]: ES: 'top 3'"),
        (
            {"plans": [{"keep": {"ES": 3}, "components": ["ES"]}]},
            "components: `keep` names them itself",
        ),
        ({"plans": [{"percent": 50, "components": []}]}, "plans[1].components: is empty"),
        ({"generate": {"beam": 0}}, "generate.beam: a whole number from 1 on is needed, got 0"),
        ({"plans": [{"prune": "top 1", "method": "top"}]}, "method: only `percent` takes it"),
        ({"plans": [{"percent": 50, "method": "best"}]}, "method: 'best'"),
        ({"plans": [{"prune": "top 1", "at_least": 1}]}, "only `percent` takes it"),
        ({"plans": [{**GATES, "at_least": 1}]}, "plans[1].at_least: l0-gates chooses the heads of"),
        ({"plans": [{**GATES, "recovery": "scratch"}]}, "plans[1].recovery: l0-gates fine-tunes"),
        ({"plans": [{**GATES, "order": "important-first"}]}, "only a `method` that is a score has"),
        (
            {"plans": [{**GATES, "draw": "component"}]},
            "only heads that are drawn at random",
        ),
        ({"plans": [GATES], "form": "mask"}, "form: 50% l0-gates: closed gates remove heads"),
        (
            {"plans": [GATES], "finetune": DISTILLED},
            "finetune: 50% l0-gates: gates are not lea",
        ),
        ({"plans": [{"percent": 90, "at_least": 2}]}, "plans[1]: all components: "),
        ({"train": {"max-update": "10%"}}, "train.max-update: give the length in updates or in"),
        ({"train": {"max-update": "long"}}, "train.max-update: a whole number from 1 on is needed"),
        (
            {"arch": "transformer_headpruned_tinny"},
            "arch: fairseq-train: argument --arch/-a: invalid",
        ),
        ({"model": {"encoder-layer": 2}}, "model: fairseq-train: unrecognized arguments: --encod"),
        ({"seeds": []}, "seeds: at least one"),
        ({"seeds": [1, 1]}, "seeds: [1, 1] repeats"),
        ({"seeds": ["a"]}, "seeds: a whole number"),
        ({"shape": {"ES": "4x"}}, "shape.ES: '4x' is not heads x layers"),
        ({"train": {"seed": 1}}, "train.seed: not to be set here"),
        ({"train": {"--lr": 1}}, "train.--lr: write it"),
        ({"train": {"lr": [1, 2]}}, "train.lr: a text, a number"),
        ({"finetune": {"lr": 1}}, "finetune: max-epoch or max-update is needed"),
        ({"train": {"lr": 1}}, "train: max-epoch or max-update is needed"),
        ({"control": "yes please"}, "control: true or false"),
        ({"precision": "fp8"}, "precision: 'fp8' is not one of"),
        ({"paper": ["table9"]}, "'table9' is not one of"),
        ({"paper": ["table1"]}, "which column?"),
        ({"resources": {"train": {}}}, "unknown key: resources.train"),
        ({"resources": {"baseline": {"threads": 0}}}, "resources.baseline.threads: a whole number"),
        ({"name": "a/b"}, "name: 'a/b' names the run folder"),
        ({"plans": [{"percent": 5, "label": ".."}]}, "plans[1]: no folder can be named after the"),
        ({"plans": [{"percent": 5, "label": "."}]}, "plans[1]: no folder can be named after the"),
        ({"plans": [{"percent": 5, "label": ""}]}, "plans[1]: no folder can be named after the"),
        ({"plans": [{"percent": 5, "label": "половина"}]}, "the label 'половина'; give it"),
        ({"plans": [{"percent": 5, "label": "x" * 300}]}, "is too long for the name of a folder"),
        ({"plans": [{"percent": 5, "label": "a\nb"}]}, "plans[1].label: 'a\\nb' is not one line"),
        (
            {"plans": [{"percent": 5, "label": "Half"}, {"percent": 6, "label": "half"}]},
            "plans[2]: 'half' is the same row as 'Half', or would have the same folder, half",
        ),
        (
            {"plans": [{"percent": 5, "label": "a b"}, {"percent": 6, "label": "a/b"}]},
            "plans[2]: 'a/b' is the same row as 'a b', or would have the same folder, a-b",
        ),
        ({"plans": [{"percent": 5, "label": "Control"}]}, "plans[1]: 'Control' is the same row"),
        ({"seeds": [2**32]}, "seeds: a whole number up to 4294967295 is needed"),
        ({"baseline_seed": 2**40}, "baseline_seed: a whole number up to 4294967295"),
        ({"shape": {"ES": "8x1000000000"}}, "shape.ES: '8x1000000000' is not heads x layers"),
        ({"runner": ["translation"]}, "runner: ['translation'] is not one of"),
        ({"finetune": DISTILLED | {"distill-from": "m.pt"}}, "finetune.distill-from: 'm.pt'; give"),
        ({"finetune": DISTILLED | {"distill-from": None}}, "distill-from: None; give baseline"),
        ({"finetune": DISTILLED | {"criterion": "cross_entropy"}}, "give `criterion: label_smooth"),
        ({"train": DISTILLED}, "train: the baseline has no teacher"),
        ({"scores": ["best"]}, "scores: there is no score 'best'"),
        ({"scores": ["movement"]}, "scores: movement depends on a fine-tuning"),
        ({"scores": "taylor"}, "scores: a list is needed"),
        ({"gpus": 2}, "train: 2 GPUs: --update-freq is 1, no multiple of it"),
        (
            {"resources": {"finetune": {"gpu": 3}}, "finetune": {"max-epoch": 1, "update-freq": 2}},
            "finetune: 3 GPUs: --update-freq is 2, no multiple of it",
        ),
    ],
)
def test_a_mistake_is_refused_in_one_line_that_names_the_key(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError) as caught:
        load_any(written(tmp_path, **changes))
    assert message in str(caught.value)
    assert "study.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["model", "train", "finetune"])
def test_plans_and_gpus_alone_say_what_is_pruned_and_where(tmp_path: Path, key: str) -> None:
    pytest.importorskip("fairseq")
    from fairseq_plugin.options import PLAN_OPTIONS

    layers = ("encoder_layers_to_keep", "decoder_layers_to_keep")
    for option in (*PLAN_OPTIONS, *layers, "head_seed", "distributed_world_size"):
        flag = option.replace("_", "-")
        whence = "`gpus`" if "distributed" in flag else "`plans`"
        with pytest.raises(DataError, match=f"{key}.{flag}: not to be set .* from {whence}"):
            load(tmp_path, **{key: {"max-epoch": 1, flag: "2"}})


@pytest.mark.parametrize(
    "text", ["name: [", "name: a\nname: b\n", "- a\n- b\n", "", "3\n", "\ttab: x\n"]
)
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(DataError, match="broken.yaml") as caught:
        load_study(path)
    assert "\n" not in str(caught.value)


ALIASES = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)
MERGES = "m0: &m0 {x: 1}\n" + "".join(
    f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 10)}]}}\n" for n in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested more than 50 deep"),
        ("name: " + "{a: " * 50_000, "nested more than 50 deep"),
        ("\n".join(" " * n + "a:" for n in range(200)), "nested more than 50 deep"),
        ("name: " + "9" * 5000, "a number that is too large (line 1)"),
        ("name: 0x" + "f" * 50, "a number that is too large (line 1)"),
        ("? [a, b]\n: 1", "a list or a mapping as a key (line 1)"),
        ("? {a: b}\n: 1", "a list or a mapping as a key (line 1)"),
        (ALIASES, "more than 20,000 values, aliases replaced"),
        (MERGES, "more than 20,000 values, aliases replaced"),
        ("name: &a [*a]", "found unconstructable recursive node"),
        ("name: 2024-99-99", "month must be in 1..12"),
        ('name: "a\\0b"', "a character that no program can be given (line 1)"),
        ('name: "\\ud800"', "a character that no program can be given (line 1)"),
        ("name: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
        ("# " + "x" * 300_000, "longer than 256 KiB"),
        ("name: a\nname: b", "key 'name' is given twice (line 2)"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_yaml_that_no_study_is(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        load_any(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500 + len(str(path))


def test_values_may_stand_for_one_another(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    text = yaml.safe_dump({**MINIMAL, "train": None, "finetune": None}, sort_keys=True)
    text = text.replace("train: null\n", "train: *all\n")
    path.write_text(text.replace("finetune: null\n", "finetune: &all {lr: 1, max-epoch: 1}\n"))
    study = load_study(path)
    assert "--lr" in study.train.flags and study.train.flags == study.finetune.flags


def test_a_title_may_stand_on_several_lines(tmp_path: Path) -> None:
    assert load(tmp_path, description="one\n two\n").description == "one two"


def test_a_study_is_found_by_name_or_by_path(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("")
    assert find_study("demo", folder=STUDIES) == STUDIES / "demo.yaml"
    assert find_study(str(mine), folder=STUDIES) == mine
    with pytest.raises(DataError, match=r"no study is called 'nowhere'.*demo.*multi30k"):
        find_study("nowhere", folder=STUDIES)


def test_rows_of_methods_and_of_single_components(tmp_path: Path) -> None:
    study = load(
        tmp_path,
        plans=[
            {"percent": 50, "components": ["ED"]},
            {"percent": 50, "method": "top"},
            {"percent": 50},
        ],
    )
    of_ed, top, anywhere = (row for row in study.rows if not row.is_control)
    assert (of_ed.label, top.label, anywhere.label) == ("50% ED", "50% top", "50%")
    shape = dict.fromkeys(("ES", "ED", "DS"), (4,) * 2)
    plan = of_ed.plan(shape, seed=1)
    assert (sum(plan.counts["ED"]), plan.counts["ES"], plan.counts["DS"]) == (4, (4, 4), (4, 4))
    assert top.plan(shape, seed=1).counts == dict.fromkeys(shape, (4, 0))
    assert (of_ed.select, top.select) == ("random", "top")
    assert (of_ed.requested_percent, top.requested_percent) == (None, 50)
    assert anywhere.plan(shape, seed=3) == at_random(shape, seed=3, percent=50)


def test_a_trained_baseline_takes_the_place_of_its_training(tmp_path: Path) -> None:
    model = tmp_path / "model.pt"
    model.touch()
    study = load(tmp_path, baseline_model=str(model), train=...)
    assert (study.baseline_model, study.train) == (model, None)
    jobs = jobs_of(study, [], out=tmp_path, base=tmp_path)
    files = [job.file for job in jobs if job.trainings]
    assert tmp_path / "baseline" / "model.pt" not in files and len(files) == 6

    with pytest.raises(DataError, match="missing key: train, for 50% from scratch, trained"):
        scratch = [{"percent": 50, "recovery": "scratch"}]
        load(tmp_path, baseline_model=str(model), train=..., plans=scratch)
    with pytest.raises(DataError, match="baseline_model: there is no file nowhere.pt"):
        load(tmp_path, baseline_model="nowhere.pt")
    (tmp_path / "{x}.pt").touch()
    with pytest.raises(DataError, match="study.yaml: baseline_model: '.*{x}.pt' holds '{'"):
        load(tmp_path, baseline_model=str(tmp_path / "{x}.pt"))
    with pytest.raises(DataError, match="missing key: train, .* or give baseline_model"):
        load(tmp_path, train=...)
