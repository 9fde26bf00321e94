"""Re-fitting of fairseq models, whose hidden states are T x B x C."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fairseq_plugin.scores.model import FairseqModel
from headprune import PruningPlan
from headprune.recovery.refit import refit
from headprune.recovery.residual import outputs_of
from tests.fairseq_plugin.models import build
from tests.fairseq_plugin.test_scores import model, samples

PLAN = PruningPlan(
    kept={
        **{"ES": [(0, 2), ()], "ED": [(1,), (0, 1, 2, 3)], "DS": [(0, 3), (2,)]},
        **{"EF": [range(0, 48, 2), range(48)], "DF": [range(20), range(30, 48)]},
        **{"EL": [(0,), (0,)], "DL": [(0,), (0,)]},
    },
    units={
        **{"ES": (4, 4), "ED": (4, 4), "DS": (4, 4), "EF": (48, 48), "DF": (48, 48)},
        **{"EL": (1, 1), "DL": (1, 1)},
    },
)


def pruned_from(unpruned: Any, plan: PruningPlan, **options: Any) -> Any:
    pruned = build(head_plan=plan.to_json(), **options).eval()
    pruned.load_state_dict(unpruned.state_dict())
    return pruned


def losses(model: Any, batches: Any) -> torch.Tensor:
    with torch.no_grad():
        return torch.cat([FairseqModel(model).outcome(batch).losses for batch in batches])


@pytest.mark.parametrize("options", [{}, {"encoder_normalize_before": True}])
def test_encoder_and_decoder_are_refitted(options: dict[str, Any]) -> None:
    unpruned = model(**options)
    pruned = pruned_from(unpruned, PLAN, **options)
    again = pruned_from(unpruned, PLAN, **options)
    batches = samples(3, 4)
    refitted = refit(FairseqModel(pruned), FairseqModel(unpruned), lambda: iter(batches))
    places = [(each.component, each.layer) for each in refitted]
    assert places == [
        *(("ES", 0), ("EF", 0), ("ES", 1)),
        *(("DS", 0), ("ED", 0), ("DF", 0), ("DS", 1), ("DF", 1)),
    ]
    assert all(each.after <= each.before for each in refitted)
    # Source tokens with </s>, and those of the decoder's input; no padding.
    lengths = (4, 1, 7, 3, 5, 2, 6), (6, 2, 3, 3, 8, 1, 5)
    tokens = [sum(side) + len(side) for side in lengths]
    assert {each.tokens for each in refitted[:3]} == {tokens[0]}
    assert {each.tokens for each in refitted[3:]} == {tokens[1]}
    difference = losses(pruned, batches) - losses(unpruned, batches)
    before = losses(again, batches) - losses(unpruned, batches)
    assert difference.abs().mean() < 0.5 * before.abs().mean()
    # The same data in other batches, of another amount of padding.
    refit(FairseqModel(again), FairseqModel(unpruned), lambda: samples(1, 1, 5))
    torch.testing.assert_close(losses(again, batches), losses(pruned, batches), atol=2e-3, rtol=0)


@pytest.mark.parametrize("options", [{}, {"encoder_normalize_before": True}])
def test_encoder_and_decoder_are_refitted_with_the_residual_connection(
    options: dict[str, Any],
) -> None:
    unpruned = model(**options)
    alone, pruned = (pruned_from(unpruned, PLAN, **options) for _ in range(2))
    batches = samples(3, 4)
    whole = FairseqModel(unpruned)
    outputs = refit(FairseqModel(alone), whole, lambda: batches)
    sums = refit(FairseqModel(pruned), whole, lambda: batches, target="residual")
    assert all(each.after <= each.before for each in sums)
    # Nothing differs below the first sub-layer: its sum and its output are as far off.
    assert sums[0].after == pytest.approx(outputs[0].after, rel=1e-4)
    assert sums[1].before > outputs[1].before
    # The decoder normalises the sums after its sub-layers.
    found: list[torch.Tensor] = []
    norm = pruned.decoder.layers[-1].final_layer_norm
    hook = norm.register_forward_pre_hook(lambda _, given: found.append(given[0]))
    with torch.no_grad():
        pruned(**batches[0]["net_input"])
        scored = FairseqModel(pruned)
        projection = scored.sublayers["DF"][-1].output
        (output,) = outputs_of(scored, [projection], batches[0], with_sums=True)
    hook.remove()
    assert output.added is not None
    torch.testing.assert_close(output.result + output.added, found[0])


def test_layers_that_are_gone_are_left_out() -> None:
    unpruned = model()
    kept = {"ES": [(), (1, 2)], "EL": [(), (0,)]}
    plan = PruningPlan(kept=kept, units={"ES": (4, 4), "EL": (1, 1)})
    pruned = pruned_from(unpruned, plan)
    (only,) = refit(FairseqModel(pruned), FairseqModel(unpruned), lambda: samples(7))
    assert (only.component, only.layer) == ("ES", 1)
