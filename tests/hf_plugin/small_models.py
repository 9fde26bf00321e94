"""Models of two small layers for every family, and their inputs, for the battery of all families.

``tests.hf_plugin.models`` has the families that all other tests run on.
"""

from __future__ import annotations

import copy
import functools
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel, PreTrainedModel

from headprune.plan import PruningPlan
from hf_plugin.cutting import rows_of
from hf_plugin.families import sublayers
from hf_plugin.plans import model_shape
from hf_plugin.random_batches import random_batch

HEADS, LAYERS, NEURONS = 4, 2, 12

_ENCODER: dict[str, Any] = dict(
    vocab_size=40,
    hidden_size=16,
    num_hidden_layers=LAYERS,
    num_attention_heads=HEADS,
    intermediate_size=NEURONS,
    max_position_embeddings=64,
    pad_token_id=0,
)
_ENCODER_DECODER: dict[str, Any] = dict(
    vocab_size=40,
    d_model=16,
    encoder_layers=LAYERS,
    decoder_layers=LAYERS,
    encoder_attention_heads=HEADS,
    decoder_attention_heads=HEADS,
    encoder_ffn_dim=NEURONS,
    decoder_ffn_dim=NEURONS,
    max_position_embeddings=64,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=1,
    forced_eos_token_id=None,
)
_IMAGE: dict[str, Any] = dict(
    hidden_size=16,
    num_hidden_layers=LAYERS,
    num_attention_heads=HEADS,
    intermediate_size=NEURONS,
    image_size=8,
    patch_size=4,
)
_GROUPED: dict[str, Any] = {
    **_ENCODER,
    "num_attention_heads": 2 * HEADS,
    "num_key_value_heads": HEADS,
    "head_dim": 2,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_T5: dict[str, Any] = dict(
    vocab_size=40,
    d_model=16,
    d_kv=4,
    d_ff=NEURONS,
    num_layers=LAYERS,
    num_decoder_layers=LAYERS,
    num_heads=HEADS,
    pad_token_id=0,
    eos_token_id=2,
    decoder_start_token_id=0,
)
_XLM: dict[str, Any] = dict(
    vocab_size=40, emb_dim=16, n_layers=LAYERS, n_heads=HEADS, n_langs=1, pad_index=2
)
SMALL: dict[str, dict[str, Any]] = {
    "ernie": _ENCODER,
    "data2vec-text": _ENCODER,
    "rembert": {**_ENCODER, "input_embedding_size": 8, "output_embedding_size": 8},
    "roformer": {**_ENCODER, "embedding_size": 16},
    "megatron-bert": _ENCODER,
    "bert-generation": _ENCODER,
    "roberta-prelayernorm": _ENCODER,
    "xlm-roberta-xl": _ENCODER,
    "xmod": {**_ENCODER, "languages": ["en_XX"], "default_language": "en_XX"},
    "esm": {**_ENCODER, "mask_token_id": 1, "position_embedding_type": "rotary"},
    "layoutlm": _ENCODER,
    "markuplm": {**_ENCODER, "max_depth": 4, "xpath_unit_hidden_size": 4},
    "splinter": _ENCODER,
    "bros": {**_ENCODER, "hidden_size": 64},
    # Six embeddings of the places make up the width; the layout is a quarter as wide.
    "lilt": {**_ENCODER, "hidden_size": 48, "channel_shrink_ratio": 4},
    "mobilebert": {
        **_ENCODER,
        "embedding_size": 8,
        "true_hidden_size": 16,
        "intra_bottleneck_size": 16,
        "num_feedforward_networks": 2,
    },
    "tapas": _ENCODER,
    "visual_bert": {**_ENCODER, "visual_embedding_dim": 8},
    "canine": {**_ENCODER, "num_hash_buckets": 32, "num_hash_functions": 4},
    "mbart": _ENCODER_DECODER,
    "pegasus": _ENCODER_DECODER,
    # Its defaults drop each layer of a training step at random, with its gradients.
    "m2m_100": {**_ENCODER_DECODER, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0},
    "plbart": _ENCODER_DECODER,
    "blenderbot": _ENCODER_DECODER,
    "blenderbot-small": _ENCODER_DECODER,
    "whisper": {
        **_ENCODER_DECODER,
        "num_mel_bins": 4,
        "max_source_positions": 8,
        "max_target_positions": 32,
    },
    "vit": _IMAGE,
    # Two of its models classify images.
    "deit": {**_IMAGE, "architectures": ["DeiTForImageClassification"]},
    "beit": {**_IMAGE, "use_relative_position_bias": True, "layer_scale_init_value": 0.5},
    "vit_mae": {
        **_IMAGE,
        "mask_ratio": 0.0,
        "decoder_hidden_size": 16,
        "decoder_num_hidden_layers": 1,
        "decoder_num_attention_heads": HEADS,
        "decoder_intermediate_size": NEURONS,
    },
    "audio-spectrogram-transformer": {
        **_IMAGE,
        "frequency_stride": 4,
        "time_stride": 4,
        "max_length": 12,
        "num_mel_bins": 8,
    },
    "dinov2": {**_IMAGE, "mlp_ratio": 1},
    "yolos": {**_IMAGE, "image_size": [8, 8], "num_detection_tokens": 3},
    "clip_text_model": {**_ENCODER, "projection_dim": 8, "bos_token_id": 1, "eos_token_id": 2},
    "clip_vision_model": {**_IMAGE, "projection_dim": 8},
    "gpt2": dict(
        vocab_size=40,
        n_embd=16,
        n_layer=LAYERS,
        n_head=HEADS,
        n_inner=NEURONS,
        n_positions=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    ),
    "openai-gpt": dict(vocab_size=40, n_embd=16, n_layer=LAYERS, n_head=HEADS, n_positions=64),
    "opt": {
        **_ENCODER,
        "ffn_dim": NEURONS,
        "word_embed_proj_dim": 16,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "biogpt": {**_ENCODER, "bos_token_id": 1, "eos_token_id": 2},
    "t5": _T5,
    "mt5": _T5,
    "umt5": _T5,
    "mpnet": _ENCODER,
    "albert": {**_ENCODER, "embedding_size": 8, "num_hidden_groups": LAYERS},
    "xlm": _XLM,
    "flaubert": _XLM,
    **dict.fromkeys(
        ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma3_text", "granite", "smollm3"),
        _GROUPED,
    ),
    "gemma2": {**_GROUPED, "sliding_window": 4},
}
_SINE_WAVES = ("pegasus", "m2m_100", "whisper")
"""Families with position embeddings that are computed, or trained from computed ones."""


@functools.cache
def _built(family: str, auto: Any, attention: str) -> PreTrainedModel:
    torch.manual_seed(1)
    config = AutoConfig.for_model(family, **copy.deepcopy(SMALL[family]))
    model: PreTrainedModel = auto.from_config(config, attn_implementation=attention or None).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not (family in _SINE_WAVES and "embed_positions" in name):
                parameter.normal_(std=0.3)
    return model


def small(family: str, auto: Any = AutoModel, attention: str = "") -> PreTrainedModel:
    """A model in evaluation mode with weights large enough for every head to matter."""
    return copy.deepcopy(_built(family, auto, attention))


def inputs_of(model: PreTrainedModel) -> dict[str, Tensor]:
    """Two examples; those of tokens are seven and six tokens long."""
    return random_batch(model, 2, 7, seed=5)


def output_of(model: PreTrainedModel, **options: Any) -> Tensor:
    """The model's first output: hidden states, or a task head's logits."""
    output: Tensor = model(**inputs_of(model), **options)[0]
    return output


def plan_of(model: PreTrainedModel, *components: str, second: bool = False) -> PruningPlan:
    """A plan of these components, with a layer without units in each.

    Args:
        second: empty the bottom layers in place of the top ones.
    """
    kept = {
        "ES": [(0, 2, 3), ()],
        "ED": [(), (1, 2)],
        "DS": [(1,), ()],
        "EF": [(0, 3, 5, 11), ()],
        "DF": [(), (2,)],
        "EL": [(0,), ()],
        "DL": [(), (0,)],
    }
    shape = {name: units for name, units in model_shape(model).items() if name in components}
    chosen = {
        name: [tuple(unit for unit in layer if unit < units[0]) for layer in kept[name]]
        for name, units in shape.items()
    }
    if second:
        chosen = {name: layers[::-1] for name, layers in chosen.items()}
    return PruningPlan(kept=chosen, units=shape)


def zeroed(model: PreTrainedModel, plan: PruningPlan) -> PreTrainedModel:
    """A stock model with zeros in the columns of W_o and W_2 of all units that a plan prunes."""
    model = copy.deepcopy(model)
    for component, by_layer in sublayers(model).items():
        for sublayer, kept in zip(by_layer, plan.kept.get(component, ()), strict=False):
            for output in sublayer.outputs:
                with torch.no_grad():
                    columns = rows_of(output).unflatten(1, (sublayer.units, -1))
                    columns[:, [unit for unit in range(sublayer.units) if unit not in kept]] = 0
    return model
