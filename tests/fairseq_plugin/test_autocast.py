"""Results of --autocast bf16 are close to float32, and no weight is stored in bfloat16."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_plugin.checkpoints import Checkpoint
from headprune import UsageError
from headprune.bfloat16 import warn_if_slow
from tests.fairseq_plugin.conftest import generate, hypotheses, run, train
from tests.fairseq_plugin.decoding.test_search import translate
from tests.fairseq_plugin.models import build
from tests.fairseq_plugin.test_model import NO_HEADS_HERE_AND_THERE, loss, outputs

PLAN = NO_HEADS_HERE_AND_THERE.to_json()


def pair(**options: Any) -> tuple[Any, Any]:
    return build(head_plan=PLAN, **options), build(head_plan=PLAN, autocast="bf16", **options)


@pytest.mark.parametrize("form", ["mask", "remove"])
def test_training_is_near_float32(form: str) -> None:
    exact, rounded = pair(head_form=form)
    first, second = loss(exact), loss(rounded)
    assert first != second
    assert second.item() == pytest.approx(first.item(), rel=1e-2)
    first.backward(), second.backward()
    for one, other in zip(exact.parameters(), rounded.parameters(), strict=True):
        assert other.dtype == other.grad.dtype == torch.float32
        assert (one.grad - other.grad).norm() <= 0.1 * one.grad.norm() + 1e-3


def test_logits_are_float32() -> None:
    _, rounded = pair()
    assert outputs(rounded).dtype == torch.float32
    with torch.no_grad():
        assert outputs(rounded.eval()).dtype == torch.float32


def test_translating_is_near_float32() -> None:
    exact, rounded = (translate(m.eval(), beam_size=1, min_len=9) for m in pair())
    scores = [torch.stack([s[0]["score"] for s in found]) for found in (exact, rounded)]
    assert not torch.equal(*scores)
    torch.testing.assert_close(*scores, atol=0.05, rtol=0)


def test_weights_that_change_between_searches_are_seen() -> None:
    _, model = pair()
    translate(model.eval())
    for parameter in model.parameters():
        parameter.data.mul_(1.5)  # not counted by PyTorch as a change
    fresh = build(head_plan=PLAN, autocast="bf16", seed=1)
    fresh.load_state_dict(model.state_dict())
    ours, theirs = translate(model), translate(fresh.eval())
    assert [[h["score"] for h in s] for s in ours] == [[h["score"] for h in s] for s in theirs]


@pytest.mark.parametrize(("cast", "flag"), [("half", "--fp16"), ("bfloat16", "--bf16")])
def test_other_half_precision_is_refused(cast: str, flag: str) -> None:
    exact, rounded = pair()
    getattr(exact, cast)()
    with pytest.raises(UsageError, match=f"--autocast bf16 and {flag} exclude each other"):
        getattr(rounded, cast)()


def test_a_processor_where_it_is_slow_is_warned_about(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    warn_if_slow.cache_clear()
    exact, rounded = pair()
    outputs(exact)
    assert not capsys.readouterr().err
    outputs(rounded)
    assert capsys.readouterr().err.startswith("warning: --autocast bf16: this processor has no")


@pytest.mark.slow
def test_commands(corpus: Path, tmp_path: Path) -> None:
    options = ["--arch=transformer_headpruned_tiny", "--autocast=bf16", "--es-heads=21"]
    log = train(corpus, tmp_path, *options, epochs=2)
    assert re.search(r'"train_loss": "[\d.]+"', log)
    checkpoint = tmp_path / "checkpoint_last.pt"
    weights = Checkpoint.load(checkpoint).state["model"].values()
    assert {w.dtype for w in weights if w.is_floating_point()} == {torch.float32}
    rounded = hypotheses(generate(corpus, "--path", checkpoint))
    off = "--model-overrides={'autocast': 'none'}"
    exact = hypotheses(generate(corpus, "--path", checkpoint, off))
    assert rounded != exact
    assert sum(s for s, _ in rounded.values()) == pytest.approx(
        sum(s for s, _ in exact.values()), rel=0.05
    )
    run("headprune", "export", checkpoint, "--to=fairseq", "-o", tmp_path / "stock.pt")
    stock = hypotheses(generate(corpus, "--path", tmp_path / "stock.pt", plugin=False))
    assert {n: words for n, (_, words) in stock.items()} == {
        n: words for n, (_, words) in exact.items()
    }
    out = train(corpus, tmp_path / "half", *options, "--memory-efficient-fp16", status=2)
    assert out.strip().splitlines()[-1].startswith("error: --autocast bf16 and --fp16 exclude")
