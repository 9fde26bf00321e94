"""Claims of Voita et al. 2019 on pruning with stochastic gates and an L0 penalty."""

from __future__ import annotations

from headprune.claims.claim import Claim, Measurement, Source, not_in_records
from headprune.claims.contrasts import contrast, part
from headprune.claims.region import Region
from headprune.claims.runs import Runs, method_in
from headprune.components import HEADS
from headprune.recovery.variant import L0_GATES
from headprune.results.record import Record
from headprune.results.tasks import TRANSLATION

VOITA = "Voita et al., ACL 2019"

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
            command="",
            measure=_encoder_heads,
        ),
        Claim(
            name="specialised-heads-last",
            sentence="Specialised heads (positional, syntactic, rare words) are pruned last.",
            source=Source(paper=VOITA, place="abstract", value=""),
            region=Region(low=0),
            unit="",
            effect="share of specialised heads among the kept less their share among all",
            rows="no records: plans by gates at several strengths of the penalty, and the roles of "
            "heads (`headprune scores --score previous --score next --score rare`)",
            command="",
            measure=not_in_records,
        ),
        Claim(
            name="encoder-self-attention-first",
            sentence="Where all heads compete, those of encoder self-attention are pruned first "
            "and those of encoder-decoder attention last.",
            source=Source(paper=VOITA, place="pruning of all types of attention", value=""),
            region=Region(low=0),
            unit="",
            effect="share of heads kept in ED less the share kept in ES",
            rows="no records: plans by gates over all components at several strengths",
            command="",
            measure=not_in_records,
        ),
    ]


def _encoder_heads(runs: Runs) -> Measurement | None:
    row = runs.row(TRANSLATION, _by_gates_in_the_encoder)
    difference = contrast([row], [runs.control(TRANSLATION)])
    if difference is None:
        return None
    return Measurement(parts=[part("ES by gates - control", [difference])])


def _by_gates_in_the_encoder(record: Record) -> bool:
    """Check for a plan by learnt gates that prunes 38 of 48 ES heads or more, and no others."""
    if method_in(record) not in (L0_GATES, "gates") or "ES" not in record.plan.units:
        return False
    plan = record.plan
    kept = {name: sum(plan.counts[name]) / sum(plan.units[name]) for name in plan.units}
    return kept["ES"] <= _KEPT and all(kept.get(name, 1) == 1 for name in HEADS if name != "ES")
