"""`headprune export --to onnx`: what onnxruntime computes is what the model does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMultipleChoice,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
)

import hf_plugin
from headprune.errors import DataError, UsageError
from tests.hf_plugin.models import SOME, build, plan_for

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed")

from hf_plugin import onnx_export  # noqa: E402
from hf_plugin.onnx_export import export_to_onnx  # noqa: E402


def saved(folder: Path, family: str = "bert", auto: Any = AutoModel, form: str = "remove") -> Any:
    model = hf_plugin.prune_heads(build(family, auto), plan_for(family, SOME), form=form)
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n")
    return model


# Those of test_every_family.py and test_units.py are exported there.
@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "xlm-roberta"])
def test_a_classifier_of_a_family(family: str, tmp_path: Path):
    form = "uniform" if family == "bert" else "remove"
    model = saved(tmp_path / "model", family, AutoModelForSequenceClassification, form=form)
    done = export_to_onnx(tmp_path / "model", tmp_path / "onnx")
    assert done.outputs == ("logits",) and done.difference < 1e-5
    assert "token_type_ids" in done.inputs
    session = onnxruntime.InferenceSession(str(tmp_path / "onnx" / "model.onnx"))
    ids = torch.randint(2, 40, (4, 11))
    inputs = {name: torch.ones_like(ids) for name in done.inputs} | {"input_ids": ids}
    (logits,) = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
    with torch.no_grad():
        np.testing.assert_allclose(logits, model(**inputs).logits.numpy(), atol=1e-4)


@pytest.mark.slow
def test_the_folder_has_config_and_tokenizer(tmp_path: Path):
    saved(tmp_path / "model")
    (tmp_path / "model" / "modules.json").write_text('[{"path": ""}, {"path": "1_Pooling"}]')
    (tmp_path / "model" / "1_Pooling").mkdir()
    (tmp_path / "model" / "1_Pooling" / "config.json").write_text("{}")
    done = export_to_onnx(tmp_path / "model", tmp_path / "onnx")
    assert done.outputs == ("last_hidden_state", "pooler_output")
    assert "outputs differ by at most" in str(done)
    names = {path.name for path in (tmp_path / "onnx").iterdir()}
    assert {"model.onnx", "config.json", "vocab.txt"} <= names
    assert not any(name.endswith((".safetensors", ".tmp", ".data")) for name in names)
    assert (tmp_path / "onnx" / "1_Pooling" / "config.json").read_text() == "{}"
    content = (tmp_path / "onnx" / "model.onnx").read_bytes()
    for path in (Path(onnx_export.__file__).parent, Path(torch.__file__).parent):
        assert str(path).encode() not in content  # no stack traces


@pytest.mark.slow
def test_large_weights_are_in_a_file_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(onnx_export, "_ONE_FILE", 1000)
    saved(tmp_path / "model")
    export_to_onnx(tmp_path / "model", tmp_path / "onnx")
    assert (tmp_path / "onnx" / "model.onnx.data").stat().st_size > 1000


@pytest.mark.slow
def test_a_wrong_conversion_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    saved(tmp_path / "model")
    right = onnx_export._write

    def wrong(model: Any, path: Path, **options: Any) -> None:
        right(model, path, **options)
        with torch.no_grad():
            model.encoder.layer[0].attention.output.dense.bias[0] += 0.1

    monkeypatch.setattr(onnx_export, "_write", wrong)
    with pytest.raises(DataError, match="not exported: onnxruntime's outputs differ"):
        export_to_onnx(tmp_path / "model", tmp_path / "onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_weights_that_are_missing_are_not_drawn_at_random(tmp_path: Path):
    saved(tmp_path / "model", auto=AutoModelForSequenceClassification)
    file = tmp_path / "model" / "model.safetensors"
    state = load_file(file)
    del state["classifier.weight"]
    save_file(state, file, metadata={"format": "pt"})
    with pytest.raises(DataError, match="do not hold classifier.weight"):
        export_to_onnx(tmp_path / "model", tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()


@pytest.mark.slow
def test_a_folder_that_does_not_say_its_class(tmp_path: Path):
    saved(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"architectures": None}))
    done = export_to_onnx(tmp_path / "model", tmp_path / "onnx")
    assert done.outputs == ("last_hidden_state", "pooler_output")


@pytest.mark.slow
def test_a_config_that_asks_for_other_outputs(tmp_path: Path):
    saved(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    asked = {"return_dict": False, "output_hidden_states": True, "output_attentions": True}
    path.write_text(json.dumps(json.loads(path.read_text()) | asked))
    done = export_to_onnx(tmp_path / "model", tmp_path / "onnx")
    assert done.outputs == ("last_hidden_state", "pooler_output")


@pytest.mark.parametrize(
    ("family", "auto", "message"),
    [
        ("bart", AutoModelForSeq2SeqLM, "has a decoder"),
        ("bert", AutoModelForMultipleChoice, "not for multiple choice"),
    ],
)
def test_what_is_refused(family: str, auto: Any, message: str, tmp_path: Path):
    saved(tmp_path / "model", family, auto)
    with pytest.raises(UsageError, match=message):
        export_to_onnx(tmp_path / "model", tmp_path / "onnx")


@pytest.mark.parametrize(("family", "options"), [("bart", {}), ("bert", {"is_decoder": True})])
def test_a_decoder_alone_is_refused(family: str, options: dict[str, Any], tmp_path: Path):
    build(family, AutoModelForCausalLM, **options).save_pretrained(tmp_path / "model")
    with pytest.raises(UsageError, match="has a decoder"):
        export_to_onnx(tmp_path / "model", tmp_path / "onnx")
