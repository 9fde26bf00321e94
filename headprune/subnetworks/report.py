"""The report on the sub-networks of several models."""

from __future__ import annotations

import json
from collections.abc import Sequence

from headprune.plan import PruningPlan
from headprune.report.document import Block, Column, Document, Notes, Signatures, Table
from headprune.report.shown import Decimals, Kept, Marked
from headprune.report.table import cell_of
from headprune.results.marks import CONSTANT_MARK
from headprune.results.metrics import direction, is_low_good
from headprune.results.record import Record
from headprune.results.signature import common_part
from headprune.subnetworks.choices import FULL, NAMES
from headprune.subnetworks.elements import kinds_of, of_kind
from headprune.subnetworks.run import Network, Subnetworks
from headprune.subnetworks.survival import (
    heat_map,
    mean_overlaps,
    overlap_notes,
    overlap_values,
    pairs_table,
    sentences_on,
    survival_counts,
)

_TWO = Decimals(2)


def document_of(found: Subnetworks, *, title: str) -> Document:
    """Sentences, tables, notes and the heat map of survival."""
    overlaps = mean_overlaps(found.survivors, pool=found.pool)
    number = len(found.models)
    blocks: list[Block] = [Notes(findings(found)), _metric_table(found), _models_table(found)]
    if overlaps:
        labels = {f"model {place}": each for place, each in enumerate(found.survivors, 1)}
        blocks.append(pairs_table(labels, pool=found.pool))
    blocks.append(Notes([*_notes(found), *(overlap_notes() if overlaps else [])]))
    blocks.append(Signatures(_signatures(found)))
    counts = survival_counts(found.survivors)
    return Document(
        title=title,
        blocks=blocks,
        sheet=_sheet(found),
        values={
            "format": "headprune.subnetworks",
            "version": 1,
            "title": title,
            "metric": found.metric,
            "score": found.rules.score,
            "threshold": found.rules.threshold,
            "step": found.rules.step,
            "models": [
                {
                    "model": path,
                    "held_out_full": search.full,
                    "held_out": search.value,
                    "survivors": json.loads(search.survivors.to_json(with_origin=False)),
                }
                for path, search in zip(found.models, found.searches, strict=True)
            ],
            "networks": [
                {
                    "seed": each.seed,
                    "name": each.name,
                    "before": each.before.value,
                    "after": None if each.after is None else each.after.value,
                    "elements": json.loads(each.elements.to_json(with_origin=False)),
                }
                for each in found.networks
            ],
            "survival": counts,
            "overlaps": overlap_values(overlaps),
        },
        figures=[
            heat_map(
                {"": counts},
                name="survival",
                title=title,
                label=f"number of models, of {number}, in which it survives",
                most=float(number),
            )
        ],
    )


def findings(found: Subnetworks) -> list[str]:
    """Sentences on the overlap of the models' survivors."""
    overlaps = mean_overlaps(found.survivors, pool=found.pool)
    return sentences_on({"these models": overlaps}) or [
        "One model: the overlap of survivors needs two or more, and is left out."
    ]


def _named(found: Subnetworks, name: str) -> list[Network]:
    return [each for each in found.networks if each.name == name]


def _cell(records: Sequence[Record | None]) -> Marked | None:
    """Mean and deviation over models; None where nothing was measured."""
    known = [record for record in records if record is not None]
    if not known:
        return None
    cell = cell_of(known)
    return Marked(cell.value, bool(cell.constant))


def _metric_table(found: Subnetworks) -> Table:
    number = len(found.models)
    spread = (
        "of one model" if number == 1 else f"mean ± sample standard deviation over {number} models"
    )
    table = Table(
        caption=f"{found.metric}{direction(found.metric)} ({spread}):",
        columns=[
            *(Column("sub-network"), Column("right after pruning")),
            Column("after fine-tuning"),
        ],
        rows=[
            [
                "not pruned" if name == FULL else name,
                _cell([each.before for each in _named(found, name)]),
                _cell([each.after for each in _named(found, name)]),
            ]
            for name in (FULL, *NAMES)
        ],
    )
    return table.without_empty_columns()


def _models_table(found: Subnetworks) -> Table:
    kinds = kinds_of(found.survivors[0])
    return Table(
        caption="Survivors:",
        columns=[
            *(Column("model"), Column("path"), *(Column(kind) for kind in kinds)),
            Column("held-out, not pruned", _TWO),
            *(Column("held-out, survivors", _TWO), Column("steps tried")),
        ],
        rows=[
            [
                *(number, path, *(_kept(search.survivors, kind) for kind in kinds)),
                *(search.full, search.value, len(search.attempts) - 1),
            ]
            for number, (path, search) in enumerate(
                zip(found.models, found.searches, strict=True), 1
            )
        ],
    )


def _kept(plan: PruningPlan, kind: str) -> Kept:
    part = of_kind(plan, kind)
    return Kept(part.total_kept, part.total)


def _limit(found: Subnetworks) -> str:
    """The condition of a further step of pruning."""
    threshold = f"{found.rules.threshold:g}%"
    if is_low_good(found.metric):
        return f"the unpruned model's {found.metric} is at least {threshold} of it"
    return f"{found.metric} is at least {threshold} of the unpruned model's"


def _notes(found: Subnetworks) -> list[str]:
    rules = found.rules
    kinds = kinds_of(found.survivors[0])
    notes = [
        f"good: the survivors of pruning in steps of {rules.step:g}% of "
        f"{' and of '.join(kinds)} by {rules.score}, as long as {_limit(found)}. "
        "random: as many, drawn at random. bad: as many of those that did not survive, the least "
        "important in the unpruned model first; where there are too few, the least important "
        "survivors too.",
        "Scores are computed on one half of the held-out examples, and the metric that ends the "
        "pruning on the other half (held-out in the table of survivors). The reported metric is of "
        "other examples.",
    ]
    if "MLPs" in kinds:
        notes.append(
            "An MLP is pruned as a whole, by the gradient of the loss with respect to one gate of "
            "all its neurons; the bias of its output projection stays."
        )
    if found.restarted_from is not None:
        notes.append(
            "After fine-tuning: sub-networks and the unpruned model begin with the weights of "
            f"{found.restarted_from}, as in Prasanna et al. (2020)."
        )
    elif any(each.after is not None for each in found.networks):
        notes.append(
            "After fine-tuning: sub-networks and the unpruned model are fine-tuned further, from "
            "the weights of their model. Prasanna et al. (2020) restart from the weights before "
            "any fine-tuning."
        )
    if any(record.training.get("constant_prediction") for record in _records(found)):
        notes.append(
            f"{CONSTANT_MARK}: a model gives the same output for every example: its figure does "
            "not say how well its elements were chosen."
        )
    return notes


def _records(found: Subnetworks) -> list[Record]:
    return [
        record
        for each in found.networks
        for record in (each.before, each.after)
        if record is not None
    ]


def _signatures(found: Subnetworks) -> list[str]:
    records = _records(found)
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.kind, record.row), []).append(record)
    of_metrics = {
        f"{found.metric}|{signature}"
        for record in records
        for signature in record.metric_signatures.values()
    }
    return [
        *(common_part([record.signature for record in group]) for group in groups.values()),
        *sorted(of_metrics),
    ]


def _sheet(found: Subnetworks) -> Table:
    kinds = kinds_of(found.survivors[0])
    return Table(
        columns=[
            *(Column("model"), Column("subnetwork"), *(Column(kind) for kind in kinds)),
            *(Column("before"), Column("after"), Column("parameters")),
        ],
        rows=[
            [
                *(each.seed, each.name),
                *(of_kind(each.elements, kind).total_kept for kind in kinds),
                each.before.value,
                None if each.after is None else each.after.value,
                each.before.parameters,
            ]
            for each in found.networks
        ],
    )
