"""`headprune latency` and `headprune plan --speedup` on checkpoints, for beam search."""

from __future__ import annotations

from pathlib import Path

import pytest

from headprune import PruningPlan, open_model
from headprune.cost import forward_flops
from headprune.speed.latency import Latency
from tests import virtual_processor
from tests.command import headprune

SMALL = ("--batch", 2, "--length", 5, "--threads", 1, "--beam", 2, "--steps", 2)
CHOSEN = "DS,DF,EL,DL"


def test_a_search_is_as_fast_as_asked(full: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        virtual_processor.install(patch, lambda flops: 1e-9 * flops)
        files = ("--components", CHOSEN, "-o", tmp_path / "latency.json")
        done = headprune("latency", full, *SMALL, "--rounds", 2, *files)
        assert done.status == 0, done.err
    measured = Latency.load(tmp_path / "latency.json")
    assert measured.conditions.job == "search" and list(measured.saved) == CHOSEN.split(",")
    scores = ("scores", full, "--score", "magnitude", "--components", CHOSEN, "-o", tmp_path)
    assert headprune(*scores).status == 0
    done = headprune(
        *("plan", "--model", full, "--speedup", 1.3, "--latency", tmp_path / "latency.json"),
        *("--scores", tmp_path / "magnitude.json", "--verify", 1, "-o", tmp_path / "plan.json"),
    )
    assert done.status == 0 and "measured" in done.err, done.err  # in real time
    plan = PruningPlan.load(tmp_path / "plan.json")
    opened = open_model(full)
    whole, less = (
        forward_flops(each, opened.sizes, source=5, target=5, beam=2)
        for each in (PruningPlan.full(opened.shape), plan.completed(opened.shape))
    )
    assert 1.299 <= whole / less == pytest.approx(measured.speedup_of(plan))


def test_the_decoder_has_no_components_of_the_encoder(
    full: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    virtual_processor.install(monkeypatch, lambda flops: 1e-9 * flops)
    path = tmp_path / "latency.json"
    done = headprune(
        "latency", full, *SMALL, "--job", "decoder", "--rounds", 1, "--steps", 1, "-o", path
    )
    assert done.status == 0, done.err
    assert list(Latency.load(path).saved) == ["ED", "DS", "DF", "DL"]
    assert "decoder over 2 x 5 tokens, beam 2, 1 threads" in done.out
