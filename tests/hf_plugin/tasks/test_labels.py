"""The type of task of a model follows from the class that its config names."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoConfig

from hf_plugin.tasks.labels import outputs_of
from hf_plugin.tasks.task import TaskType


@pytest.mark.parametrize(
    ("family", "name", "expected"),
    [
        ("bert", "BertForMaskedLM", TaskType.single_label),
        ("distilbert", "DistilBertForMaskedLM", TaskType.single_label),
        ("albert", "AlbertForMaskedLM", TaskType.single_label),
        ("xlm", "XLMWithLMHeadModel", TaskType.single_label),
        ("bert", "BertModel", TaskType.single_label),
        ("distilbert", "DistilBertForTokenClassification", TaskType.tokens),
        ("vit", "ViTForImageClassification", TaskType.images),
        ("gpt2", "GPT2LMHeadModel", TaskType.language_modelling),
        ("llama", "LlamaForCausalLM", TaskType.language_modelling),
        ("bert", "BertLMHeadModel", TaskType.language_modelling),
        ("bart", "BartForConditionalGeneration", TaskType.translation),
        ("bert-generation", "BertGenerationDecoder", TaskType.language_modelling),
    ],
)
def test_the_type_of_a_model(family: str, name: str, expected: TaskType, tmp_path: Path) -> None:
    config = AutoConfig.for_model(family)
    config.architectures = [name]
    config.save_pretrained(tmp_path)
    assert outputs_of(str(tmp_path)).type is expected
    config.architectures = [f"HeadPruned{name}"]
    config.save_pretrained(tmp_path)
    assert outputs_of(str(tmp_path)).type is expected
