"""`headprune latency` and `headprune plan --speedup` on Hugging Face folders."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageClassification

from headprune import PruningPlan, UsageError, open_model
from headprune.cost import forward_flops
from headprune.speed.latency import Latency
from tests import virtual_processor
from tests.command import Outcome, headprune
from tests.hf_plugin.made import write_model
from tests.hf_plugin.small_models import small
from tests.latency_files import write_latency

SMALL = ("--batch", 2, "--length", 8, "--threads", 1)
ALL = ("--components", "ES,EF,EL")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def scores(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scores")
    done = headprune("scores", model, "--score", "random", "--components", "ES,EF", "-o", folder)
    assert done.status == 0, done.err
    return folder / "random.json"


@pytest.fixture(scope="module")
def latency(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Measured on a processor that does one operation a nanosecond."""
    path = tmp_path_factory.mktemp("latency") / "latency.json"
    with pytest.MonkeyPatch.context() as patch:
        virtual_processor.install(patch, lambda flops: 1e-9 * flops)
        done = headprune("latency", model, *SMALL, "--rounds", 3, "--steps", 4, "-o", path)
    assert done.status == 0, done.err
    return path


@pytest.fixture
def plan(model: Path, scores: Path, latency: Path, tmp_path: Path) -> Any:
    """Runs `headprune plan --speedup` with these files, or others."""

    def run(*options: object, **files: Path) -> Outcome:
        given = {"model": model, "scores": scores, "latency": latency, **files}
        flags = [word for name, path in given.items() for word in (f"--{name}", path)]
        return headprune("plan", *flags, *options, "-o", tmp_path / "plan.json")

    return run


def test_a_file_has_the_savings_of_each_number_of_units(model: Path, latency: Path) -> None:
    measured, opened = Latency.load(latency), open_model(model)

    def seconds(plan: PruningPlan) -> float:
        flops = forward_flops(plan, opened.sizes, source=8, target=8)
        return 2 * 1e-9 * flops

    full = PruningPlan.full(opened.shape)
    assert measured.seconds == pytest.approx(seconds(full)) and measured.dtype == "float32"
    assert {name: sorted(savings) for name, savings in measured.saved.items()} == {
        "ES": [0, 1, 2, 3, 4],
        "EF": [0, 4, 8, 12, 16],
        "EL": [0, 1],
    }
    plan = PruningPlan(
        kept={"ES": [(), (0, 1), (3,)], "EF": [(1,), (), range(9)], "EL": [(0,), (), (0,)]},
        units={name: opened.shape[name] for name in ("ES", "EF", "EL")},
    )
    assert measured.seconds_of(plan) == pytest.approx(seconds(plan))


@pytest.mark.parametrize("times", [1.5, 2, 3])
def test_a_plan_is_as_fast_as_asked(times: float, plan: Any, model: Path, tmp_path: Path) -> None:
    done = plan("--speedup", times, *ALL, "--verify", 0)
    assert done.status == 0, done.err
    chosen = PruningPlan.load(tmp_path / "plan.json")
    assert chosen.origin is not None and chosen.origin.method == "random"
    sizes = open_model(model).sizes
    full = PruningPlan.full(chosen.units)
    speed = forward_flops(full, sizes, source=8) / forward_flops(chosen, sizes, source=8)
    assert times * 0.999 <= speed <= times * 1.1  # a unit is a large part of so small a model
    assert f"predicted {speed:.2f} times as fast" in done.err and "not measured" in done.err


def test_what_the_prediction_misses_is_corrected(
    plan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a processor on which half the operations take more than half the time."""
    virtual_processor.install(monkeypatch, lambda flops: (1e-9 * flops) ** 0.7)
    done = plan("--speedup", 1.6, *ALL)
    assert done.status == 0, done.err
    measured = [float(text) for text in re.findall(r"measured ([\d.]+)", done.err)]
    assert len(measured) > 1 and measured[0] < 1.5
    assert measured[-1] == pytest.approx(1.6, rel=0.05) and "warning" not in done.err


def test_a_plan_that_empties_components_is_a_warning(
    plan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    virtual_processor.install(monkeypatch, lambda flops: 1e-9 * flops)
    done = plan("--speedup", 1000, "--at-least", 0, "--verify", 0, *ALL)
    assert done.status == 0, done.err
    assert "warning: no unit of ES, EF, EL is kept; measure the pruned model" in done.err
    assert "no unit of" not in plan("--speedup", 1.2, "--verify", 0, *ALL).err


def test_a_speed_that_is_not_reached_is_a_warning(
    plan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    virtual_processor.install(monkeypatch, lambda flops: 1.0)
    done = plan("--speedup", 2, *ALL)
    assert "warning: 2x speed was not reached within 5%; the nearest plan is 1.00x" in done.err
    assert 1 <= len(re.findall(r"measured [\d.]+", done.err)) <= 3


def test_the_file_of_an_image_model_says_what_was_timed(tmp_path: Path) -> None:
    small("vit", AutoModelForImageClassification).save_pretrained(tmp_path / "model")
    path = tmp_path / "latency.json"
    with pytest.MonkeyPatch.context() as patch:
        virtual_processor.install(patch, lambda flops: 1e-9 * flops)
        done = headprune("latency", tmp_path / "model", *SMALL, "--rounds", 1, "-o", path)
    assert done.status == 0 and "forward pass over 2 images of 8 x 8 pixels, 1 thr" in done.out
    measured, opened = Latency.load(path), open_model(tmp_path / "model")
    assert measured.job_name.startswith("forward pass over 2 images of 8 x 8 pixels, 1 threads")
    full = PruningPlan.full(opened.shape)
    assert measured.seconds == pytest.approx(2e-9 * forward_flops(full, opened.sizes))
    shown = headprune("show", tmp_path / "model").out
    assert "(a forward pass, one input of 5 positions, matrix products" in shown


def test_mistakes(plan: Any, model: Path, latency: Path, scores: Path, tmp_path: Path) -> None:
    other = write_model(tmp_path / "other", num_hidden_layers=2)
    content = json.loads(latency.read_text())
    abacus = tmp_path / "abacus.json"
    abacus.write_text(json.dumps(content | {"device": "Abacus"}))
    (tmp_path / "half.json").write_text(scores.read_text()[:200])
    pruned = tmp_path / "pruned"
    headprune("prune", model, "--plan", _half(tmp_path, model), "-o", pruned)
    for done, message in (
        (plan("--speedup", 0.5), "--speedup 0.5: give how many times as fast"),
        (plan("--speedup", 9, "--components", "ES"), "9x speed: cannot be reached by pruning ES"),
        (plan("--speedup", 2, latency=abacus), "measured on Abacus, and this is"),
        (plan("--speedup", 2, model=other), "ES has 3 layers of 4 heads there, 2 layers of 4"),
        (plan("--speedup", 2, model=pruned), "is pruned already"),
        (plan("--speedup", 2, scores=tmp_path / "half.json"), "not JSON"),
        (plan("--speedup", 2, "--percent", 50), "give one of --percent, --budget, --speedup"),
        (plan("--percent", 50), "--latency and --verify go with --speedup"),
        (headprune("plan", "--speedup", 2), "--speedup needs --model, --scores and --latency"),
        (headprune("latency", pruned, *SMALL, "-o", tmp_path / "l"), "is pruned already"),
        (headprune("latency", model, *SMALL, "--job", "search", "-o", tmp_path / "l"), "no job"),
        (
            headprune("latency", model, *SMALL, "--components", "DS", "-o", tmp_path / "l"),
            "--components DS: the job forward has the components ES, EF, EL",
        ),
    ):
        assert done.status in (1, 2) and message in done.err, (message, done.err)
        assert done.err.startswith("error: ") and done.err.count("\n") == 1
    assert not (tmp_path / "plan.json").exists() and not (tmp_path / "l").exists()


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_files_with_other_sizes_of_the_same_model(family: str, tmp_path: Path) -> None:
    """The widths of gated layers were others in older versions, which knew no parameters."""
    opened = open_model(write_model(tmp_path / "model", family=family))
    path = tmp_path / "latency.json"
    write_latency(opened, path, job="forward")
    content = json.loads(path.read_text())
    sizes = content["sizes"]
    matrices = sizes["encoder_projections"]
    older = {name: sizes[name] for name in ("encoder_width", "encoder_head_dim", "vocabulary")}
    older["encoder_feed_forward"] = sizes["encoder_feed_forward"] * matrices // 2
    path.write_text(json.dumps(content | {"sizes": older}))
    Latency.load(path).require_model(opened, where=path)
    Latency.load(path).save(path)
    assert json.loads(path.read_text())["sizes"] == older
    for name, message in (
        ("encoder_width", f"encoder width 48 there, {sizes['encoder_width']} here"),
        ("encoder_projections", f"encoder projections 48 there, {matrices} here"),
    ):
        path.write_text(json.dumps(content | {"sizes": older | {name: 48}}))
        with pytest.raises(UsageError, match=message):
            Latency.load(path).require_model(opened, where=path)


def test_times_of_another_data_type_are_refused(tmp_path: Path) -> None:
    model = small("ernie")
    for dtype in (torch.float32, torch.bfloat16):
        model.to(dtype).save_pretrained(tmp_path / str(dtype))
    whole, half = (open_model(tmp_path / str(each)) for each in (torch.float32, torch.bfloat16))
    path = tmp_path / "latency.json"
    latency = write_latency(whole, path, job="forward")
    latency.require_model(whole, where=path)
    with pytest.raises(UsageError, match="in float32, and .*bfloat16 is in bfloat16; measure it"):
        latency.require_model(half, where=path)
    replace(latency, dtype=None).require_model(half, where=path)  # where it is not known


def _half(folder: Path, model: Path) -> Path:
    path = folder / "half-plan.json"
    headprune("plan", "--model", model, "--percent", 50, "-o", path)
    return path
