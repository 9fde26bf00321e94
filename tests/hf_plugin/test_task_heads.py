"""Every task head of the most used families: pruned, masked and saved it gives the same."""

from __future__ import annotations

import pytest
import torch
from transformers import PreTrainedModel

import hf_plugin
from hf_plugin import modeling
from tests.hf_plugin.models import FAMILIES, SOME, batch, build, plan_for

MODELS = sorted(
    (model for model in modeling.all_models() if model.config_class.model_type in FAMILIES),
    key=lambda model: model.__name__,
)


class Exactly:
    """Stands for an Auto class in ``build``: makes one model class."""

    def __init__(self, model_class: type[PreTrainedModel]) -> None:
        self.model_class = model_class

    def from_config(self, config, **options) -> PreTrainedModel:
        return self.model_class._from_config(config, **options)


def output(model: PreTrainedModel) -> torch.Tensor:
    inputs = batch()
    if "MultipleChoice" in type(model).__name__:
        inputs = {name: tensor.unsqueeze(1).repeat(1, 3, 1) for name, tensor in inputs.items()}
    if "Marian" in type(model).__name__ and model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = inputs["input_ids"]
    if "BartForSequence" in type(model).__name__:
        inputs["input_ids"][:, 4] = model.config.eos_token_id
    with torch.no_grad():
        return model(**inputs)[0]


@pytest.mark.parametrize("model_class", MODELS, ids=lambda model_class: model_class.__name__)
def test_removal_equals_masking_and_is_saved(model_class, tmp_path):
    family = model_class.config_class.model_type
    model = build(family, Exactly(model_class))
    plan = plan_for(family, SOME)
    mine = hf_plugin.head_plan(model)
    if plan.heads != mine.heads:  # a decoder alone
        plan = type(plan)(kept={name: plan.kept[name] for name in mine.kept}, heads=mine.heads)
    with hf_plugin.masked(model, plan):
        expected = output(model)
    hf_plugin.prune_heads(model, plan)
    torch.testing.assert_close(output(model), expected, atol=1e-5, rtol=1e-5)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    torch.testing.assert_close(output(loaded), expected, atol=1e-5, rtol=1e-5)
    assert hf_plugin.head_plan(loaded) == plan


def test_no_family_is_without_a_model():
    assert {model.config_class.model_type for model in MODELS} == set(FAMILIES)
