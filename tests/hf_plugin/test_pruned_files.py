"""Files of pruned models: stock classes and transformers alone read them, or refuse them."""

from __future__ import annotations

import contextlib
import functools
import json
import threading
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    PreTrainedModel,
)

import hf_plugin
from headprune import UsageError
from hf_plugin import modeling, modeling_headpruned
from tests.hf_plugin.models import FAMILIES, HEADS, NONE, SOME, batch, build, clone, first, plan_for
from tests.hf_plugin.processes import run

families = pytest.mark.parametrize("family", FAMILIES)
forms = pytest.mark.parametrize("form", ["remove", "uniform"])


def close(a, b):
    torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def saved(folder, family="bert", form="remove", plan=SOME) -> PreTrainedModel:
    auto = AutoModelForSeq2SeqLM if family in ("bart", "marian") else AutoModel
    model = hf_plugin.prune_heads(build(family, auto), plan_for(family, plan), form=form)
    model.save_pretrained(folder)
    return model


@forms
def test_stock_classes_read_pruned_folders(form, tmp_path):
    model = hf_plugin.prune_heads(
        build("bert", AutoModelForSequenceClassification), SOME, form=form
    )
    model.save_pretrained(tmp_path)
    for loaded in (
        BertForSequenceClassification.from_pretrained(tmp_path),
        BertForSequenceClassification.from_pretrained(str(tmp_path), config=model.config),
        BertForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)[0],
        BertForSequenceClassification.from_pretrained(pretrained_model_name_or_path=tmp_path),
    ):
        assert type(loaded) is type(model) and hf_plugin.head_plan(loaded) == SOME
        close(first(loaded), first(model))
    close(first(BertModel.from_pretrained(tmp_path)), first(model.bert))


def test_stock_classes_read_other_folders_as_ever(tmp_path):
    build("bert").save_pretrained(tmp_path)
    loaded = BertModel.from_pretrained(tmp_path)
    assert type(loaded) is BertModel and type(loaded.config) is BertConfig
    assert type(BertModel.from_pretrained(pretrained_model_name_or_path=tmp_path)) is BertModel
    with pytest.raises(OSError, match="nowhere"):
        BertModel.from_pretrained(tmp_path / "nowhere")
    pruned = saved(tmp_path / "pruned")
    fresh = BertModel.from_pretrained(None, config=BertConfig(**sizes()), state_dict={})
    assert type(fresh) is BertModel and type(pruned) is not BertModel


def test_stock_classes_look_for_pruned_configs_in_the_local_cache_alone(tmp_path, monkeypatch):
    requests = []

    def download(*_, local_files_only=False, **__):
        requests.append(local_files_only)
        raise OSError("not in the cache")

    with monkeypatch.context() as patch:
        patch.setattr("transformers.utils.hub.hf_hub_download", download)
        options = {"cache_dir": tmp_path / "empty", "force_download": True}
        assert not modeling.is_of_pruned(BertModel, "someone/model", options)
    assert requests == [True]
    cached = tmp_path / "cache" / "models--someone--model"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text("0" * 40)
    saved(cached / "snapshots" / ("0" * 40))
    assert modeling.is_of_pruned(BertModel, "someone/model", {"cache_dir": tmp_path / "cache"})


def sizes() -> dict[str, int]:
    config = build("bert").config
    names = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
    more = ("intermediate_size", "max_position_embeddings")
    return {name: getattr(config, name) for name in (*names, *more)}


@forms
@families
def test_a_class_that_ignores_the_plan_refuses_the_weights(family, form, tmp_path):
    model = saved(tmp_path, family, form)
    stock = type(model).__bases__[-1]
    config = build(family).config
    with pytest.raises(RuntimeError, match="size"):
        stock.from_pretrained(tmp_path, config=config)


@forms
@families
def test_the_code_in_the_folder_computes_the_same(family, form, tmp_path):
    for plan in (SOME, NONE):
        model = saved(tmp_path / "model", family, form, plan)
        remote = getattr(modeling_headpruned, type(model).__name__)
        loaded = remote.from_pretrained(tmp_path / "model")
        close(first(loaded), first(model))
        loaded.save_pretrained(tmp_path / "again")
        close(first(remote.from_pretrained(tmp_path / "again")), first(model))
        close(first(type(model).from_pretrained(tmp_path / "again")), first(model))


@pytest.mark.slow
def test_transformers_alone_loads_pruned_folders(tmp_path):
    expected = {}
    for family in ("bert", "modernbert", "marian"):
        for form in ("remove", "uniform"):
            name = f"{family}-{form}"
            expected[name] = first(saved(tmp_path / name, family, form)).detach()
    torch.save(expected, tmp_path / "expected.pt")
    torch.save(batch(), tmp_path / "batch.pt")
    code = """
import torch
from transformers import AutoModel, AutoModelForSeq2SeqLM
inputs = torch.load(folder + "/batch.pt")
for name, expected in torch.load(folder + "/expected.pt").items():
    marian = name.startswith("marian")
    auto = AutoModelForSeq2SeqLM if marian else AutoModel
    more = {"decoder_input_ids": inputs["input_ids"][:, :4]} if marian else {}
    model = auto.from_pretrained(f"{folder}/{name}", trust_remote_code=True)
    torch.testing.assert_close(model(**inputs, **more)[0], expected, atol=1e-5, rtol=1e-5)
    assert not [name for name in sys.modules if name.startswith(("headprune.", "hf_plugin."))]
print("the same")
"""
    done = run(code, tmp_path, blocked=True)
    assert done.stdout == "the same\n", done.stderr


@pytest.mark.slow
def test_transformers_alone_says_where_pruned_models_come_from(tmp_path):
    saved(tmp_path / "model")
    code = "import transformers; transformers.BertModel.from_pretrained(folder)"
    done = run(code, tmp_path / "model", blocked=True)
    assert done.returncode != 0 and "`import hf_plugin` (a part of headprune)" in done.stderr
    code = "import transformers; transformers.AutoModel.from_pretrained(folder)"
    done = run(code, tmp_path / "model", blocked=True)
    assert done.returncode != 0 and "trust_remote_code=True" in done.stderr
    note = json.loads((tmp_path / "model" / "config.json").read_text())["headprune"]
    assert "a part of headprune" in note


def rewrite(folder: Path, change) -> None:
    """Change the tensors of a folder, and take newer entries from its config."""
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    for key in ("auto_map", "headprune", "transformers_weights", "uniform_layout"):
        del config[key]
    (folder / "config.json").write_text(json.dumps(config))


@families
def test_uniform_folders_of_older_versions(family, tmp_path):
    model = saved(tmp_path, family, "uniform")
    stored = load_file(tmp_path / "model.safetensors")
    assert any(tensor.dim() == 3 for tensor in stored.values())
    rewrite(
        tmp_path,
        lambda tensors: {
            name: tensor.flatten(0, 1) if tensor.dim() == 3 else tensor
            for name, tensor in tensors.items()
        },
    )
    for loaded in (
        type(model).from_pretrained(tmp_path),
        hf_plugin.from_pretrained(tmp_path),
        type(model).from_pretrained(tmp_path, config=model.config, ignore_mismatched_sizes=True),
    ):
        assert hf_plugin.head_plan(loaded) == plan_for(family, SOME)
        close(first(loaded), first(model))
    type(model).from_pretrained(tmp_path).save_pretrained(tmp_path)
    assert type(model.config).from_pretrained(tmp_path).uniform_layout == "by-head"
    close(first(type(model).from_pretrained(tmp_path)), first(model))


def test_an_error_other_than_a_size_mismatch_is_raised_at_once(tmp_path, monkeypatch):
    model = saved(tmp_path)
    calls = []

    def fail(*_, **options):
        calls.append(options)
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(PreTrainedModel, "from_pretrained", fail)
    with pytest.raises(RuntimeError, match="CUDA out of memory"):
        type(model).from_pretrained(tmp_path)
    assert len(calls) == 1


def test_a_part_of_a_uniform_model_and_its_state_dict(tmp_path):
    model = hf_plugin.prune_heads(
        build("bert", AutoModelForSequenceClassification), SOME, form="uniform"
    )
    model.save_pretrained(tmp_path / "whole")
    model.bert.save_pretrained(tmp_path / "part")
    close(first(AutoModel.from_pretrained(tmp_path / "part")), first(model.bert))
    other = clone(model)
    for parameter in other.parameters():
        parameter.data.zero_()
    other.load_state_dict(load_file(tmp_path / "whole" / "model.safetensors"))  # as the Trainer
    assert torch.equal(first(other), first(model))
    other.load_state_dict(model.state_dict())
    model.save_pretrained(tmp_path / "sharded", max_shard_size="5KB")
    close(first(AutoModel.from_pretrained(tmp_path / "sharded")), first(model.bert))


@families
def test_empty_tensors_of_older_versions_are_not_needed(family, tmp_path):
    model = saved(tmp_path, family)
    empty = {
        f"{name}.{part}": tensor
        for name, module in model.named_modules()
        for part, tensor in module.named_buffers(recurse=False)
        if not tensor.numel()
    }
    assert len(empty) >= 2 and not any(not p.numel() for p in model.parameters())
    assert not any(not tensor.numel() for tensor in model.state_dict().values())
    rewrite(tmp_path, lambda tensors: {**tensors, **empty})
    loaded, info = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not info["unexpected_keys"] and not info["missing_keys"]
    close(first(loaded), first(model))
    loaded.load_state_dict({**model.state_dict(), **empty})


def test_uniform_heads_that_are_removed_later(tmp_path):
    model = saved(tmp_path / "uniform", form="uniform")
    hf_plugin.prune_heads(model, SOME).save_pretrained(tmp_path / "removed")
    with_heads = load_file(tmp_path / "removed" / "model.safetensors")
    assert not any(tensor.dim() == 3 for tensor in with_heads.values())
    close(first(AutoModel.from_pretrained(tmp_path / "removed")), first(model))


def test_the_code_lies_beside_the_config_of_pruned_models_alone(tmp_path):
    hf_plugin.prune_heads(build("bert"), {0: range(HEADS)}).config.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} > {"config.json", "modeling_headpruned.py"}
    hf_plugin.prune_heads(build("bert"), {}).save_pretrained(tmp_path / "stock")
    assert {path.name for path in (tmp_path / "stock").iterdir()} == {
        "config.json",
        "model.safetensors",
    }


def test_quantising_a_uniform_model_while_it_is_loaded_is_refused(tmp_path):
    model = saved(tmp_path, form="uniform")
    for kind in (type(model), modeling_headpruned.HeadPrunedBertModel):
        config = kind.config_class.from_pretrained(tmp_path)
        config.quantization_config = {"quant_method": "torchao"}
        with pytest.raises((UsageError, ValueError), match="cannot be quantised while it is"):
            kind(config)


class _Hub(SimpleHTTPRequestHandler):
    """A hub with one model, whose files lie in the server's folder."""

    def translate_path(self, path: str) -> str:
        prefix = "/some/model/resolve/main/"
        name = path.removeprefix(prefix) if path.startswith(prefix) else "not on this hub"
        return super().translate_path(f"/{name}")

    def send_response(self, code: int, message: str | None = None) -> None:
        super().send_response(code, message)
        if code != HTTPStatus.OK:
            missing = "Entry" if self.path.startswith("/some/model") else "Repo"
            self.send_header("X-Error-Code", f"{missing}NotFound")

    def end_headers(self) -> None:
        self.send_header("ETag", f'"{Path(self.path).name}"')  # the file's name in the cache
        self.send_header("X-Repo-Commit", "1" * 40)
        super().end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.slow
def test_stock_classes_read_pruned_models_of_the_hub_the_first_time(tmp_path):
    model = saved(tmp_path / "model")
    torch.save(first(model).detach(), tmp_path / "expected.pt")
    torch.save(batch(), tmp_path / "batch.pt")
    code = """
import torch, hf_plugin
from transformers import BertModel
model = BertModel.from_pretrained("some/model")
expected = torch.load(folder + "/expected.pt")
torch.testing.assert_close(model(**torch.load(folder + "/batch.pt"))[0], expected)
try:
    BertModel.from_pretrained("no/model")
except OSError as problem:
    assert "no/model" in str(problem)
    print("the same")
"""
    hub = ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(_Hub, directory=tmp_path / "model")
    )
    threading.Thread(target=hub.serve_forever, daemon=True).start()
    with contextlib.closing(hub.socket):
        done = run(
            code,
            tmp_path,
            blocked=False,
            HF_ENDPOINT=f"http://127.0.0.1:{hub.server_port}",
            HF_HOME=str(tmp_path / "home"),
            HF_HUB_OFFLINE="0",
        )
        hub.shutdown()
    assert done.stdout == "the same\n", done.stderr
