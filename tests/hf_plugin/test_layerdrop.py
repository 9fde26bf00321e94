"""LayerDrop in Hugging Face models."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoConfig, AutoModel

import hf_plugin
from headprune import PruningPlan, UsageError
from hf_plugin.layerdrop import add_layerdrop
from tests.hf_plugin.scores.test_scores import classifier, data
from tests.hf_plugin.small_models import SMALL


def logits(model: torch.nn.Module, family: str) -> torch.Tensor:
    with torch.no_grad():
        output: torch.Tensor = model(**data(family)).logits
    return output


@pytest.mark.parametrize("family", ["bert", "modernbert", "bart"])
def test_layers_are_skipped_while_training_and_never_in_evaluation(family: str) -> None:
    model = classifier(family).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    for name in ("dropout", "activation_dropout", "attention_dropout", "dropout_prob"):
        for module in model.modules():
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    model.set_attn_implementation("eager")
    shape = dict(hf_plugin.plan(model).units.items())
    depth = len(next(iter(shape.values())))
    sides = ("EL", "DL") if len(shape) > 1 else ("EL",)
    whole = logits(model, family)
    units = dict.fromkeys(sides, (1,) * depth)
    empty = PruningPlan(kept={side: [()] * depth for side in sides}, units=units)
    with hf_plugin.masked(model, empty):
        skipped = logits(model, family)

    hooks = add_layerdrop(model, 1.0)
    torch.testing.assert_close(logits(model, family), skipped, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(logits(model.eval(), family), whole, atol=1e-5, rtol=1e-5)
    for hook in hooks:
        hook.remove()
    add_layerdrop(model.train(), 0.5)
    torch.manual_seed(0)
    assert len({float(logits(model, family).sum()) for _ in range(10)}) > 2


def test_no_probability() -> None:
    with pytest.raises(UsageError, match="LayerDrop: 1.2 is no probability"):
        add_layerdrop(classifier("bert"), 1.2)


@pytest.mark.parametrize("family", ["albert", "xlm", "flaubert"])
def test_a_family_without_layers_that_can_be_dropped_is_refused(family: str) -> None:
    model = AutoModel.from_config(AutoConfig.for_model(family, **SMALL[family]))
    message = f"LayerDrop: the {family} model has no layers that can be dropped"
    with pytest.raises(UsageError, match=message):
        add_layerdrop(model, 0.2)
    assert add_layerdrop(model, 0.0) == []  # nothing is asked for
