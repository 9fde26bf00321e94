"""Trainings that resume in families whose files have older names for the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForImageClassification,
    AutoModelForSeq2SeqLM,
    TrainingArguments,
)

from hf_plugin.distillation import DistillationTrainer
from hf_plugin.trainer import ResumableTrainer, freeze_unsaved
from tests.hf_plugin.small_models import inputs_of, small
from tests.hf_plugin.vocabulary import tiny


def train(trainer: Any, folder: Path, *, resume: Path | None = None, **options: Any) -> Any:
    """Train a small ViT on four images for two epochs of two updates."""
    model = small("vit", AutoModelForImageClassification)
    images = inputs_of(model)["pixel_values"]
    rows = [{"pixel_values": image, "labels": torch.tensor(n)} for n, image in enumerate(images)]
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=2,
        per_device_train_batch_size=2,
        learning_rate=1e-3,
        save_strategy="epoch",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    training = trainer(model, arguments, train_dataset=rows * 2, **options)
    training.train(resume_from_checkpoint=None if resume is None else str(resume))
    return training


@pytest.mark.parametrize("trainer", [ResumableTrainer, DistillationTrainer])
def test_resuming_gives_the_same_weights(trainer: Any, tmp_path: Path) -> None:
    options = {}
    if trainer is DistillationTrainer:
        options["teacher"] = small("vit", AutoModelForImageClassification)
    whole = train(trainer, tmp_path / "whole", **options)
    first = tmp_path / "whole" / "checkpoint-2"
    weights = train(trainer, tmp_path / "resumed", resume=first, **options).model.state_dict()
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(weights[name], tensor), name


def test_the_final_model_has_the_names_of_the_family(tmp_path: Path) -> None:
    train(ResumableTrainer, tmp_path).save_model(str(tmp_path / "final"))
    names = load_file(tmp_path / "final" / "model.safetensors").keys()
    assert any("attention.attention.query" in name for name in names)


def test_weights_that_are_not_saved_are_not_trained(tmp_path: Path) -> None:
    """Else the loaded model would have others; those of Marian's positions, if it was loaded."""
    model = AutoModelForSeq2SeqLM.from_pretrained(tiny.marian(tmp_path / "model"))
    tokens = torch.tensor([5, 6, 7, 0])
    rows = [{"input_ids": tokens, "labels": tokens}]
    arguments = TrainingArguments(
        output_dir=str(tmp_path / "training"),
        max_steps=2,
        learning_rate=1e-2,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = ResumableTrainer(model, arguments, train_dataset=rows)
    trainer.train()
    trainer.save_model(str(tmp_path / "trained"))
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "trained").state_dict()
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded[name], tensor), name


def test_tied_weights_are_trained() -> None:
    model = small("mbart", AutoModelForSeq2SeqLM)
    model._keys_to_ignore_on_save = {"lm_head.weight"}
    freeze_unsaved(model)
    assert all(weight.requires_grad for weight in model.parameters())
