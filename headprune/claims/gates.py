"""Claims of Voita et al. 2019 on pruning with stochastic gates and an L0 penalty."""

from __future__ import annotations

from headprune.claims.claim import Claim, Measurement, Source
from headprune.claims.contrasts import Contrast, contrast, part
from headprune.claims.region import Region
from headprune.claims.runs import Row, Runs, method_in
from headprune.claims.specialised import specialised_heads_kept
from headprune.components import HEADS
from headprune.recovery.variant import L0_GATES
from headprune.results.record import Record
from headprune.results.tasks import TRANSLATION

VOITA = "Voita et al., ACL 2019"

_METHODS = (L0_GATES, "gates")

_KEPT = 10 / 48
"""The share of encoder heads that the gates of Voita et al. keep."""


def claims() -> list[Claim]:
    """The claims on the encoder's heads and on the order in which heads are pruned."""
    return [
        Claim(
            name="most-encoder-heads-pruned",
            sentence="38 of 48 encoder heads can be pruned by gates with 0.15 BLEU lost.",
            source=Source(
                paper=VOITA,
                place="abstract",
                value="WMT en-ru -0.15; OpenSubtitles, 44 of 48 heads, -0.25",
                numbers=[-0.15],
            ),
            region=Region(low=-0.15),
            unit="BLEU",
            effect="BLEU of the model with 38 of 48 ES heads or more pruned by gates less the "
            "control's; in models of other sizes, with as large a share",
            rows="control, and 38 of 48 ES heads or more pruned by gates, with the same seeds",
            command="make study STUDY=gates SETTING=wmt14.en-ru",
            measure=_encoder_heads,
        ),
        Claim(
            name="specialised-heads-last",
            sentence="Specialised heads (positional, syntactic, rare words) are pruned last.",
            source=Source(paper=VOITA, place="abstract", value=""),
            region=Region(low=0),
            unit="points",
            effect="percentage of specialised heads among the kept ES heads less that among all",
            rows="plans by gates that prune ES heads, the record of the unpruned model, and its "
            "scores `previous`, `next`, `rare` and those of syntax for the option --scores",
            command="make study STUDY=gates SETTING=wmt14.en-ru; headprune scores MODEL --data "
            "DATA --score previous --score next --score rare",
            measure=_specialised,
            on_scores=True,
        ),
        Claim(
            name="encoder-self-attention-first",
            sentence="Where all heads compete, those of encoder self-attention are pruned first "
            "and those of encoder-decoder attention last.",
            source=Source(paper=VOITA, place="pruning of all types of attention", value=""),
            region=Region(low=0),
            unit="points",
            effect="percentage of heads kept in DS less the percentage kept in ES, and that in ED "
            "less that in DS",
            rows="plans by gates over all heads, at several budgets",
            command="make study STUDY=gates SETTING=wmt14.en-ru",
            measure=_order_of_components,
        ),
    ]


def _encoder_heads(runs: Runs) -> Measurement | None:
    control = runs.control(TRANSLATION)
    # Gates train the model: fine-tuned afterwards, it has been trained for longer than the control.
    lengths = {record.finetune for _, record in control.values()}

    def is_trained_as_long(record: Record) -> bool:
        return _by_gates_in_the_encoder(record) and record.finetune in lengths

    row = runs.row(TRANSLATION, is_trained_as_long) or runs.row(
        TRANSLATION, is_trained_as_long, kind="before-finetune"
    )
    difference = contrast([row], [control])
    if difference is None:
        return None
    return Measurement(parts=[part("ES by gates - control", [difference])])


def _specialised(runs: Runs) -> Measurement | None:
    return specialised_heads_kept(runs, _by_gates)


def _order_of_components(runs: Runs) -> Measurement | None:
    # The rows before and after a recovery have the same plans.
    rows = {
        label: row
        for kind in ("before-finetune", "pruned")
        for label, row in runs.matching(TRANSLATION, _by_gates_over_all_heads, kind=kind).items()
    }
    if not rows:
        return None
    return Measurement(
        parts=[
            part(
                f"{later} - {earlier} of {', '.join(rows)}",
                [_kept_more(row, later=later, earlier=earlier) for row in rows.values()],
            )
            for later, earlier in (("DS", "ES"), ("ED", "DS"))
        ]
    )


def _kept_more(row: Row, *, later: str, earlier: str) -> Contrast:
    """The percentage of heads kept in one component less that in another, by seed."""
    return Contrast(
        differences={
            seed: 100 * (_share_kept(record, later) - _share_kept(record, earlier))
            for seed, (_, record) in row.items()
        },
        models=[],
    )


def _by_gates(record: Record) -> bool:
    """Check for a plan by learned gates that prunes heads, and neither neurons nor layers."""
    return method_in(record) in _METHODS and record.plan.prunes_heads_alone


def _by_gates_over_all_heads(record: Record) -> bool:
    """Check for a plan by learned gates in which the heads of all components compete.

    A plan that keeps all heads of ED and DS is taken for one of gates on ES alone.
    """
    if not _by_gates(record) or not set(HEADS) <= record.plan.units.keys():
        return False
    return any(_share_kept(record, component) < 1 for component in ("ED", "DS"))


def _share_kept(record: Record, component: str) -> float:
    plan = record.plan
    return sum(plan.counts[component]) / sum(plan.units[component])


def _by_gates_in_the_encoder(record: Record) -> bool:
    """Check for a plan by learned gates that prunes 38 of 48 ES heads or more, and no others."""
    if not _by_gates(record) or "ES" not in record.plan.units:
        return False
    kept = {name: _share_kept(record, name) for name in record.plan.units}
    return kept["ES"] <= _KEPT and all(kept.get(name, 1) == 1 for name in HEADS if name != "ES")
