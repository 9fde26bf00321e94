"""Image classifiers on folders with a sub-folder a label."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForImageClassification,
    BitImageProcessor,
    DeiTForImageClassificationWithTeacher,
)
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

import headprune
import hf_plugin
from headprune import PruningPlan
from headprune.cli.compare import app as compare_app
from headprune.cli.iterate import app as iterate_app
from headprune.cli.scores import app as scores_app
from headprune.errors import HeadpruneError
from headprune.results.record import Record
from headprune.scores import HeadScores
from headprune.scores.ablation import cases_of
from headprune.scores.reuse import masked_outcomes
from hf_plugin.image_processors import ImageCollator
from hf_plugin.scores.model import HuggingFaceModel
from hf_plugin.tasks.images import is_image_folder
from tests.hf_plugin.finetuning.test_run import killed_after_a_checkpoint
from tests.hf_plugin.made import write_model
from tests.hf_plugin.small_models import inputs_of, small

from .test_commands import QUICK, finetune, measure, run

FAMILIES = ("vit", "deit", "dinov2", "beit")
LABELS = ("blue", "red")


def write_images(folder: Path, size: int, *, seed: int, bright: int = 200) -> Path:
    """Red and blue noise, of several sizes and kinds of files."""
    rng = np.random.default_rng(seed)
    for number in range(size):
        label = LABELS[number % 2]
        pixels = rng.integers(0, 80, (9 + number % 3, 8, 3), dtype=np.uint8)
        pixels[..., 0 if label == "red" else 2] += np.uint8(bright - 80)
        path = folder / label / ("deeper" if number % 4 == 3 else "") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).convert("RGB" if number % 5 else "P").save(path)
    return folder


def write_vit(folder: Path, family: str = "vit") -> Path:
    model = small(family, AutoModelForImageClassification)
    model.save_pretrained(folder)
    ViTImageProcessorPil(size={"height": 8, "width": 8}).save_pretrained(folder)
    return folder


def test_images_may_all_lie_one_folder_deeper(tmp_path):
    path = tmp_path / "red" / "2024" / "1.png"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    assert is_image_folder(str(tmp_path))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, ...]:
    folder = tmp_path_factory.mktemp("images")
    train = write_images(folder / "train", 24, seed=1)
    return ("--train", train, "--dev", write_images(folder / "dev", 9, seed=2))


@pytest.fixture(scope="module")
def trained(files: tuple[object, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    model = write_vit(folder / "model")
    small("vit", AutoModel).save_pretrained(model)  # an encoder alone, as published
    finetune(model, *files, *QUICK, "--epochs", 2, "--hold-out", 25, "-o", folder / "out")
    return folder / "out"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_killed_training_goes_on_from_its_own_weights(family, files, tmp_path, monkeypatch):
    """The files of these families have older names for the weights."""
    model = write_vit(tmp_path / "model", family)
    options = (model, *files, *QUICK, "--epochs", 2, "--hold-out", 25, "-o")
    finetune(*options, tmp_path / "whole")
    with killed_after_a_checkpoint(monkeypatch):
        finetune(*options, tmp_path / "killed")
    finetune(*options, tmp_path / "killed")
    assert Record.load(tmp_path / "killed" / "result.json").training["resumed"]
    whole, killed = (
        load_file(tmp_path / n / "model/model.safetensors") for n in ("whole", "killed")
    )
    assert whole.keys() == killed.keys()
    assert all(torch.equal(whole[name], killed[name]) for name in whole)


@pytest.mark.parametrize("pruned", [False, True])
def test_a_deit_that_was_distilled_from_a_teacher(pruned, files, tmp_path):
    """Published DeiTs are of a class that takes no labels."""
    folder = write_vit(tmp_path / "model", "deit")
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(folder, id2label=dict(enumerate(LABELS)))
    model = DeiTForImageClassificationWithTeacher(config)
    if pruned:
        hf_plugin.prune(model, PruningPlan(kept={"ES": [(0,), ()]}, units={"ES": (4, 4)}))
    model.save_pretrained(folder)
    finetune(folder, *files, *QUICK, "--epochs", 1, "-o", tmp_path / "out")
    tuned = AutoModelForImageClassification.from_pretrained(tmp_path / "out" / "model")
    assert type(tuned).__name__.endswith("DeiTForImageClassification")
    message = (
        r"model: its classifier \(\w+WithTeacher\) takes no labels; fine-tune it for one epoch"
    )
    with pytest.raises(HeadpruneError, match=message):
        measure(folder, *files[2:])


def test_a_classifier_of_the_sub_folders(trained, files, tmp_path):
    record = Record.load(trained / "result.json")
    assert list(record.metrics) == ["accuracy", "macro-f1"] and record.task == "dev.label"
    assert record.examples == {"train": 18, "dev": 9}
    config = AutoConfig.from_pretrained(trained / "model")
    assert config.id2label == {0: "blue", 1: "red"}
    PruningPlan(kept={"ES": [(0,), ()]}, units={"ES": (4, 4)}).save(tmp_path / "plan.json")
    out = measure(trained / "model", *files[2:], "-o", tmp_path / "whole.json").stdout
    assert Record.load(tmp_path / "whole.json").metrics == record.metrics
    assert "data:dev@" in out
    measure(trained / "model", *files[2:], "--plan", tmp_path / "plan.json")
    # transformers' own pipeline of processor and model predicts the same.
    model = AutoModelForImageClassification.from_pretrained(trained / "model").eval()
    processor = ViTImageProcessorPil.from_pretrained(trained / "model")
    paths = sorted(Path(str(files[3])).rglob("*.png"))
    images = [Image.open(path).convert("RGB") for path in paths]
    with torch.no_grad():
        predicted = model(**processor(images, return_tensors="pt")).logits.argmax(-1)
    right = [LABELS[n] in path.parts for n, path in zip(predicted.tolist(), paths, strict=True)]
    assert record.value == pytest.approx(100 * sum(right) / len(right))


def test_scores_compare_and_iterate(trained, files, tmp_path):
    chosen = ("--score", "taylor", "--score", "ablation", "--score", "entropy")
    done = run(scores_app, trained / "model", *files[:2], *chosen, "-o", tmp_path / "scores")
    assert "warning" not in done.stderr  # 6 of 24 images were held out
    for name in chosen[1::2]:
        assert HeadScores.load(tmp_path / "scores" / f"{name}.json").scored.is_full
    options = (*files, "--percent", 50, "--score", "magnitude", "--epochs", 0)
    more = ("--seeds", 1, "--rounds", 0, "-o", tmp_path / "compared")
    run(compare_app, trained / "model", *options, *more)
    found = json.loads((tmp_path / "compared" / "compare.json").read_text())
    note = "FLOPs: of a forward pass over one input of 5 positions,"
    assert note in (tmp_path / "compared" / "compare.md").read_text()
    assert found["metric"] == "accuracy" and found["data_name"].startswith("train@")
    done = run(iterate_app, trained / "model", *options, "--steps", 1, "-o", tmp_path / "steps")
    assert "step 1 of 1: 50.0% pruned, accuracy " in done.stdout


def test_python_from_scores_to_a_fine_tuned_model(trained, files, tmp_path):
    given = {"train": str(files[1]), "dev": str(files[3])}
    model = headprune.open_task_model(trained / "model", **given, epochs=1, batch_size=8)
    plan = headprune.select.by_score(model.scores(["movement"], seed=1)["movement"], percent=50)
    smaller = model.finetuned(plan, seed=1, folder=tmp_path / "smaller")
    assert smaller.model.plan == plan and 0 <= smaller.measure().value <= 100
    assert (smaller.model.path / "preprocessor_config.json").is_file()
    kept = PruningPlan(kept={"EF": [range(6)] * 2}, units={"EF": (12,) * 2})
    assert all(each.after < each.before for each in model.refitted(kept).sublayers)
    teacher = ("--distill-from", trained / "model", "--epochs", 1, "--batch-size", 8)
    finetune(trained / "model", *files, *teacher, "-o", tmp_path / "distilled")


@pytest.mark.parametrize("family", FAMILIES)
def test_ablation_with_shared_work_gives_what_the_plain_loop_gives(family):
    model = small(family, AutoModelForImageClassification)
    batch = {**inputs_of(model), "labels": torch.tensor([0, 1])}
    scored = HuggingFaceModel(model)
    cases = cases_of(scored, "ablation", ["ES"])
    _, found = masked_outcomes(scored, batch, cases, at_once=5)
    whole = PruningPlan.full({"ES": (4, 4)})
    for (component, layer), masks in cases.items():
        for mask, outcome in zip(masks, found[component, layer], strict=True):
            layers = [list(units) for units in whole.kept[component]]
            layers[layer] = sorted(mask)
            plan = PruningPlan(kept={component: layers}, units=whole.units)
            with torch.no_grad(), hf_plugin.masked(model, plan):
                expected = HuggingFaceModel(model).outcome(batch).losses
            torch.testing.assert_close(outcome.losses, expected, atol=1e-5, rtol=1e-5)
    states = model.base_model(**inputs_of(model))[0]
    assert scored.queries("ES", batch).shape == states.shape[:2]


def test_images_of_one_batch_are_in_memory(trained, tmp_path, monkeypatch):
    steps: list[str] = []
    read = ImageCollator.__call__

    def reading(collator, features):
        steps.append("read")
        return read(collator, features)

    monkeypatch.setattr(ImageCollator, "__call__", reading)
    many = write_images(tmp_path / "many", 70, seed=4)
    opened = headprune.open_task_model(trained / "model", dev=str(many))
    opened._classifier.register_forward_pre_hook(lambda *_: steps.append("run"))
    opened.measure()
    assert steps == ["read", "run"] * 3  # of 32, 32 and 6 images


def test_the_same_images_elsewhere_have_the_same_fingerprint(trained, files, tmp_path):
    copy = write_images(tmp_path / "dev", 9, seed=2)
    given = {"dev": str(copy)}
    name = headprune.open_task_model(trained / "model", **given).data_name
    assert name in measure(trained / "model", *files[2:]).stdout
    other = write_images(tmp_path / "other" / "dev", 9, seed=2, bright=201)
    assert headprune.open_task_model(trained / "model", dev=str(other)).data_name != name


def damaged(folder: Path) -> Path:
    write_images(folder, 4, seed=3)
    path = folder / "red" / "1.png"
    path.write_bytes(path.read_bytes()[:60])
    return folder


def no_image(folder: Path) -> Path:
    write_images(folder, 4, seed=3)
    (folder / "red" / "a.png").write_text("none")
    return folder


def empty_label(folder: Path) -> Path:
    write_images(folder, 4, seed=3)
    (folder / "green").mkdir()
    return folder


def unknown_label(folder: Path) -> Path:
    write_images(folder, 4, seed=3)
    (folder / "red").rename(folder / "green")
    return folder


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (damaged, "1.png: no image that can be read"),
        (no_image, "a.png: no image that can be read"),
        (empty_label, "green: no image in it; add some, or delete the folder"),
        (unknown_label, "label 'green' is none of .*model's: blue, red"),
        (
            lambda folder: folder,
            "no such folder; images need a folder with one sub-folder for each",
        ),
    ],
    ids=["damaged", "no image", "empty label", "unknown label", "no folder"],
)
def test_mistakes_are_one_line(made, message, trained, tmp_path):
    with pytest.raises(HeadpruneError, match=message) as caught:
        measure(trained / "model", "--dev", made(tmp_path / "dev"))
    assert "\n" not in str(caught.value)


def test_one_folder_of_images_is_enough_to_know_the_task(files, tmp_path):
    for label in ("red", "blue"):
        (tmp_path / "empty" / label).mkdir(parents=True)
    given = (*files[:2], "--dev", tmp_path / "empty", "-o", tmp_path / "out")
    with pytest.raises(HeadpruneError, match="blue: no image in it"):
        finetune(write_vit(tmp_path / "model"), *given)
    assert not (tmp_path / "out" / "result.json").exists()


def test_other_models_and_options_are_refused(trained, files, tmp_path):
    with pytest.raises(HeadpruneError, match="images: the sub-folders are the labels; leave"):
        measure(trained / "model", *files[2:], "--label", "colour")
    with pytest.raises(HeadpruneError, match="cannot load an image processor"):
        finetune(write_model(tmp_path / "bert"), *files, *QUICK, "-o", tmp_path / "out")
    model = write_vit(tmp_path / "other")
    small("vit", AutoModelForImageClassification).save_pretrained(model)
    finetune(trained / "model", *files, *QUICK, "--epochs", 0, "-o", tmp_path / "as-it-is")
    BitImageProcessor(do_normalize=False).save_pretrained(tmp_path / "other")
    teacher = ("--distill-from", model, "--epochs", 1)
    with pytest.raises(HeadpruneError, match="its image processor is not the model's|is for LABEL"):
        finetune(trained / "model", *files, *teacher, "-o", tmp_path / "taught")
