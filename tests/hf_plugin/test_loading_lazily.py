"""Importing the plugin imports no model code; a family's classes are made when they are needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoModel, BertModel

import hf_plugin
from hf_plugin import modeling
from hf_plugin.lazy_entries import LazyEntries
from tests.hf_plugin.models import SOME, build

_READ = """
import sys
import hf_plugin
from transformers import AutoModel

def imported(family):
    return f"transformers.models.{family}.modeling_{family}" in sys.modules

assert not any(map(imported, ("bert", "whisper", "llama"))), "after the import"
assert "transformers.models.tapas.tokenization_tapas" not in sys.modules
model = AutoModel.from_pretrained(sys.argv[1])
assert imported("bert") and not imported("whisper") and not imported("llama"), "after reading"
print(type(model).__name__, hf_plugin.head_plan(model).counts["ES"])
"""


@pytest.mark.slow
def test_a_family_is_imported_when_one_of_its_models_is_read(tmp_path: Path) -> None:
    model = hf_plugin.prune_heads(build("bert"), SOME)
    model.save_pretrained(tmp_path / "pruned")
    command = [sys.executable, "-c", _READ, str(tmp_path / "pruned")]
    read = subprocess.run(command, capture_output=True, text=True, check=False)
    assert read.returncode == 0, read.stderr
    expected = hf_plugin.head_plan(model).counts["ES"]
    assert read.stdout.split(maxsplit=1) == ["HeadPrunedBertModel", f"{expected}\n"]


def test_pruned_classes_are_found_by_name_and_are_those_of_the_auto_classes() -> None:
    pruned = modeling.HeadPrunedWhisperModel
    assert pruned is AutoModel._model_mapping[modeling.HeadPrunedWhisperConfig]
    assert pruned is modeling.pruned_class(modeling.stock_class(pruned))
    with pytest.raises(AttributeError, match="HeadPrunedNoSuchModel"):
        _ = modeling.HeadPrunedNoSuchModel


def test_a_users_class_does_not_take_the_name_of_a_stock_one() -> None:
    own = type("MPNetModel", (BertModel,), {})
    pruned = modeling.pruned_class(own)
    assert pruned.__bases__[-1] is own
    assert modeling.stock_class(modeling.HeadPrunedMPNetModel) is not own


def test_deferred_values_are_made_once() -> None:
    calls: list[str] = []
    entries = LazyEntries({"gpt2": 1})
    entries.defer("bert", lambda: calls.append("made") or len(calls))
    assert "bert" in entries and not calls
    assert dict(entries) == {"gpt2": 1, "bert": 1} and list(entries.values()) == [1, 1]
    assert calls == ["made"]
