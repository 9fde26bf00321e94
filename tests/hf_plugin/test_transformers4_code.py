"""Code for transformers 4: its functions, methods and arguments, after ``install``."""

from __future__ import annotations

import pytest
import torch
import transformers.modeling_utils
import transformers.pytorch_utils
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    BertModel,
    BertPreTrainedModel,
    PreTrainedConfig,
    PreTrainedModel,
)

import hf_plugin
from headprune import UsageError
from hf_plugin import transformers4
from tests.hf_plugin.models import FAMILIES, HEADS, LAYERS, SIZE, batch, build, config_of, first

transformers4.install()
transformers4.install()


def close(a, b):
    torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("heads", "number", "gone", "expected", "kept"),
    [
        ([1], 3, set(), {1}, [0, 1, 4, 5]),
        ({0, 2}, 3, {0}, {2}, [0, 1, 4, 5]),  # head 2 stands second now
        ([3], 2, {0, 1}, {3}, [0, 1]),
        ([], 2, {0}, set(), [0, 1, 2, 3]),
        (torch.tensor([0, 1]), 2, set(), {0, 1}, []),
    ],
)
def test_heads_and_indices(heads, number, gone, expected, kept):
    for module in (transformers4, transformers.pytorch_utils, transformers.modeling_utils):
        found, index = module.find_pruneable_heads_and_indices(heads, number, 2, gone)
        assert found == expected and index.dtype == torch.int64 and index.tolist() == kept


def test_a_head_that_is_not_there():
    with pytest.raises(IndexError, match=r"heads \[4\]: the attention has 3 heads left"):
        transformers4.find_pruneable_heads_and_indices([4], 3, 2, {0})


@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_layer(bias):
    layer = nn.Linear(4, 6, bias=bias).requires_grad_(False)
    index = torch.tensor([0, 3])
    for module in (transformers4, transformers.pytorch_utils, transformers.modeling_utils):
        rows = module.prune_linear_layer(layer, index)
        columns = module.prune_linear_layer(layer, index, dim=1)
        x = torch.rand(2, 4)
        close(rows(x), layer(x)[:, [0, 3]])
        only = torch.zeros_like(x)
        only[:, [0, 3]] = x[:, [0, 3]]
        close(columns(x[:, [0, 3]]), layer(only))
        assert all(parameter.requires_grad for parameter in rows.parameters())
        assert (rows.in_features, rows.out_features) == (4, 2)
    double = transformers4.prune_linear_layer(layer.double(), index)
    assert double.weight.dtype == torch.double


def test_models_prune_their_heads():
    model = build("bert", AutoModelForSequenceClassification)
    assert model.prune_heads({0: [1], -1: [0, 2], 2: [3]}) is None
    model.prune_heads({0: {1, 2}, -3: torch.tensor([1])})
    assert hf_plugin.head_plan(model).kept["ES"] == ((0, 3), (0, 1, 2, 3), (1,))
    other = build("bert", AutoModelForSequenceClassification)
    close(first(model), first(hf_plugin.prune_heads(other, {0: [1, 2], 2: [0, 2, 3]})))
    with pytest.raises(UsageError, match="ES: there is no layer 7"):
        model.prune_heads({7: [0]})
    with pytest.raises(UsageError, match="give heads as a list, not 2"):
        model.prune_heads({0: 2})


@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in ("bart", "marian")])
def test_a_head_mask_is_honoured(family):
    model = build(family)
    mask = torch.ones(LAYERS, HEADS)
    mask[0, 0] = mask[-1, :-1] = 0
    with hf_plugin.masked(model, mask):
        expected = first(model)
    assert not torch.allclose(expected, first(model), atol=1e-3)
    mask.requires_grad_()
    close(model(**batch(), head_mask=mask)[0], expected)
    close(model.forward(**batch(), head_mask=mask)[0], expected)
    model(**batch(), head_mask=mask)[0].sum().backward()
    assert mask.grad.isfinite().all() and (mask.grad != 0).any()
    one = torch.tensor([0.0, 1, 1, 0.5])
    with hf_plugin.masked(model, one.expand(LAYERS, HEADS)):
        expected = first(model)
    close(model(**batch(), head_mask=one)[0], expected)
    assert torch.equal(model(**batch(), head_mask=None)[0], first(model))


def test_masks_of_encoders_and_decoders():
    model = build("bart", AutoModelForSeq2SeqLM)
    masks = {name: torch.rand(LAYERS, HEADS) for name in ("ES", "DS", "ED")}
    with hf_plugin.masked(model, masks):
        expected = model(**batch())[0]
    given = {
        "head_mask": masks["ES"],
        "decoder_head_mask": masks["DS"],
        "cross_attn_head_mask": masks["ED"],
    }
    close(model(**batch(), **given)[0], expected)
    decoder = build("bart", AutoModelForCausalLM)
    alone = {"DS": masks["DS"], "ED": torch.ones(LAYERS, HEADS)}
    with hf_plugin.masked(decoder, alone):
        expected = decoder(**batch())[0]
    close(decoder(**batch(), head_mask=masks["DS"])[0], expected)
    with pytest.raises(UsageError, match="decoder_head_mask: BertModel has no DS, it has ES"):
        build("bert")(**batch(), decoder_head_mask=masks["DS"])


def test_a_mask_that_cannot_be_honoured_is_refused():
    with pytest.raises(UsageError, match=r"head_mask is \(5,\); give a tensor \(heads,\) or"):
        build("bert")(**batch(), head_mask=torch.ones(HEADS + 1))
    small = {"hidden_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
    unknown = AutoModel.from_config(
        AutoConfig.for_model("convbert", vocab_size=40, intermediate_size=8, **small)
    )
    with pytest.raises(UsageError, match="convbert is not a known family"):
        unknown(**batch(), head_mask=torch.ones(4))
    unknown(**batch(), head_mask=None)


class Old(BertPreTrainedModel):
    """A user's model for transformers 4, which passes its mask on."""

    def __init__(self, config):
        super().__init__(config)
        self.bert = BertModel(config)
        self.post_init()

    def forward(self, input_ids, attention_mask=None, head_mask=None):
        return self.bert(input_ids, attention_mask=attention_mask, head_mask=head_mask)


def test_a_model_of_the_users_own_hands_its_mask_on():
    model = Old(config_of("bert")).eval()
    mask = torch.rand(LAYERS, HEADS)
    with hf_plugin.masked(model, mask):
        expected = first(model)
    close(model(**batch(), head_mask=mask)[0], expected)


class OwnAttention(nn.Module):
    """A user's attention for transformers 4."""

    def __init__(self):
        super().__init__()
        self.value, self.out = nn.Linear(HEADS * SIZE, HEADS * SIZE), nn.Linear(HEADS * SIZE, 3)
        self.heads, self.pruned_heads = HEADS, set()

    def prune_heads(self, heads):
        from transformers.modeling_utils import (
            find_pruneable_heads_and_indices,
            prune_linear_layer,
        )

        heads, index = find_pruneable_heads_and_indices(heads, self.heads, SIZE, self.pruned_heads)
        self.value = prune_linear_layer(self.value, index)
        self.out = prune_linear_layer(self.out, index, dim=1)
        self.heads -= len(heads)
        self.pruned_heads |= heads


class Own(PreTrainedModel):
    """A user's model of an unknown family, with its own method ``_prune_heads``."""

    config_class = PreTrainedConfig

    def __init__(self, config):
        super().__init__(config)
        self.attention = OwnAttention()

    def _prune_heads(self, heads_to_prune):
        for heads in heads_to_prune.values():
            self.attention.prune_heads(heads)

    def forward(self, x):
        return self.attention.out(self.attention.value(x))


def test_a_model_that_prunes_itself():
    model = Own(PreTrainedConfig())
    x = torch.rand(2, HEADS * SIZE)
    value = model.attention.value(x).view(2, HEADS, SIZE).clone()
    value[:, [1, 3]] = 0
    expected = model.attention.out(value.view(2, -1))
    model.prune_heads({0: [1]})
    model.prune_heads({0: [1, 3]})
    close(model(x), expected)
    assert model.config.pruned_heads == {0: [1, 3]}
