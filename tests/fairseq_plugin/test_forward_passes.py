"""The jobs of checkpoints that `headprune speed` and `headprune latency` time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_plugin.backend import backend
from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.modules.decoder import HeadPrunedDecoder
from headprune import select
from headprune.cost import forward_flops
from headprune.speed.forward_pass import Conditions

CONDITIONS = Conditions(batch=2, length=6, threads=1, device="cpu", job="search", beam=3)


def test_a_search_writes_translations_of_the_given_length(full: Path):
    checkpoint = Checkpoint.load(full)
    plan = select.at_random(checkpoint.shape, percent=50, seed=1)
    for model in (checkpoint, checkpoint.prune(plan)):
        search = backend.forward_pass_of(model, CONDITIONS)
        hypotheses = search.run()
        assert [len(each) for each in hypotheses] == [3, 3]
        assert all(len(one["tokens"]) == 6 for each in hypotheses for one in each)
        flops = forward_flops(model.plan, model.sizes, source=6, target=6, beam=3)
        assert search.flops == 2 * flops and search.parameters == model.parameters


def test_all_models_continue_the_same_hypotheses(full: Path, monkeypatch: pytest.MonkeyPatch):
    """Else their caches would not be copied equally often."""
    orders: list[list[list[int]]] = []
    reorder = HeadPrunedDecoder.reorder_incremental_state_scripting

    def watched(self: Any, state: Any, rows: torch.Tensor) -> None:
        orders[-1].append(rows.tolist())
        reorder(self, state, rows)

    monkeypatch.setattr(HeadPrunedDecoder, "reorder_incremental_state_scripting", watched)
    checkpoint = Checkpoint.load(full)
    for percent in (0, 90):
        plan = select.at_random(checkpoint.shape, percent=percent, seed=1)
        orders.append([])
        backend.forward_pass_of(checkpoint.prune(plan), CONDITIONS).run()
    assert orders[0] == orders[1] and len(orders[0]) == 5  # before each step but the first
    assert all(rows != list(range(6)) for rows in orders[0])


def test_the_decoder_with_caches_computes_the_forward_pass(full: Path, stock: Path):
    for path in (full, stock):
        model = Checkpoint.load(path)
        decoder = backend.forward_pass_of(model, replace(CONDITIONS, job="decoder"))
        last = decoder.run()[0]  # beam*B x 1 x V
        whole = backend.forward_pass_of(model, replace(CONDITIONS, job="forward")).run()[0]
        torch.testing.assert_close(last.view(2, 3, -1), whole[:, -1:].expand(2, 3, -1))
        encoder = backend.forward_pass_of(model, replace(CONDITIONS, job="encoder"))
        assert encoder.run()["encoder_out"][0].shape[:2] == (6, 2)
        assert encoder.flops is decoder.flops is None


def test_no_data_are_needed(full: Path, tmp_path: Path):
    there, gone = Checkpoint.load(full), Checkpoint.load(full)
    gone.state["cfg"]["task"]["data"] = str(tmp_path / "gone")
    passes = [backend.forward_pass_of(model, CONDITIONS) for model in (there, gone)]
    assert passes[0].flops == passes[1].flops
    assert [len(hypotheses) for hypotheses in passes[1].run()] == [3, 3]


def test_the_state_of_the_training_is_no_part_of_the_size(full: Path):
    found = backend.forward_pass_of(Checkpoint.load(full), CONDITIONS)
    assert found.file_bytes == 4 * found.parameters < full.stat().st_size / 2


def test_masked_units_are_computed(full: Path):
    checkpoint = Checkpoint.load(full)
    plan = select.at_random(checkpoint.shape, percent=50, seed=1)
    masked, removed = (checkpoint.prune(plan, form=form) for form in ("mask", "remove"))
    flops = [
        backend.forward_pass_of(model, CONDITIONS).flops for model in (checkpoint, masked, removed)
    ]
    assert flops[0] == flops[1] > flops[2]
