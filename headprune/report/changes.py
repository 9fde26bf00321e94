"""What fine-tuning changes in each head: tables, and the paper's claim that it is even."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from headprune.report.markdown import markdown_rows
from headprune.report.paper import SOURCE

Values = Sequence[Sequence[float | None]]
"""For each layer, a value for each head; None for a head that is pruned."""

CLAIM = 0.10
"""What the paper says of BERT: the mean changes of any two layers differ by less than this."""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """One fine-tuned model.

    Attributes:
        label: what tables and figures call it.
        components: for each component, each head's change.
    """

    label: str
    components: Mapping[str, Values]


@dataclass(frozen=True, kw_only=True)
class Evenness:
    """How far apart the layers of one component are.

    Attributes:
        lowest, highest: the layers with the smallest and the largest mean.
        difference: how much the largest mean is above the smallest, as a share of the smallest.
    """

    label: str
    component: str
    lowest: int
    highest: int
    difference: float

    @property
    def holds(self) -> bool:
        """Whether any two layers differ by less than the paper says."""
        return self.difference < CLAIM


def layer_means(values: Values) -> list[float | None]:
    """Each layer's mean over the heads that are left; None where none is."""
    left = [[value for value in layer if value is not None] for layer in values]
    return [fmean(layer) if layer else None for layer in left]


def evenness(changes: Sequence[Changes]) -> list[Evenness]:
    """For each model and component with two layers or more that have heads, how they differ."""
    found = []
    for model in changes:
        for component, values in model.components.items():
            means = {
                layer: mean for layer, mean in enumerate(layer_means(values)) if mean is not None
            }
            if len(means) < 2:
                continue
            lowest, highest = min(means, key=lambda k: means[k]), max(means, key=lambda k: means[k])
            above = means[highest] - means[lowest]
            found.append(
                Evenness(
                    label=model.label,
                    component=component,
                    lowest=lowest,
                    highest=highest,
                    # Layers that are frozen do not change at all.
                    difference=above / means[lowest]
                    if means[lowest]
                    else (math.inf if above else 0.0),
                )
            )
    return found


def to_markdown(changes: Sequence[Changes], *, title: str) -> str:
    """Each layer's mean change, and how far apart the layers are."""
    columns = [
        (f"{model.label} {component}", layer_means(values))
        for model in changes
        for component, values in model.components.items()
    ]
    layers = max(len(means) for _, means in columns)
    by_layer = [["layer", *(name for name, _ in columns)]]
    for layer in range(layers):
        means = [means[layer] if layer < len(means) else None for _, means in columns]
        by_layer.append(
            [str(layer), *("" if mean is None else f"{mean:.3e}" for mean in means)],
        )
    claim = [["model", "component", "lowest", "highest", "difference", f"below {CLAIM:.0%}"]]
    for row in evenness(changes):
        claim.append(
            [
                row.label,
                row.component,
                f"layer {row.lowest}",
                f"layer {row.highest}",
                "infinite" if math.isinf(row.difference) else f"{row.difference:.1%}",
                "yes" if row.holds else "no",
            ]
        )
    return "\n".join(
        [
            f"# {title}",
            "",
            "Mean change of a layer's heads; empty where no head is left:",
            "",
            *markdown_rows(by_layer),
            "",
            "Largest difference between two layers' means:",
            "",
            *markdown_rows(claim),
            "",
            "- The change of a head: the mean of |after - before| over its weights in W_q, in W_k "
            "and in W_v, and of these three the mean. Pruned heads have none.",
            "- difference: by how much the highest mean is above the lowest, as a share of the "
            f"lowest. {SOURCE}: of any two layers below {CLAIM:.0%}, in every configuration of "
            "their tables 5 and 6.",
            "",
        ]
    )


def to_csv(changes: Sequence[Changes]) -> str:
    """One line for each head; the change is empty where the head is pruned."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["model", "component", "layer", "head", "change"])
    for model in changes:
        for component, values in model.components.items():
            for layer, heads in enumerate(values):
                for head, value in enumerate(heads):
                    writer.writerow([model.label, component, layer, head, value])
    return out.getvalue()


def to_json(changes: Sequence[Changes]) -> str:
    """All of it, for programs; a difference without an end is null."""
    content = {
        "format": "headprune.changes",
        "version": 1,
        "models": [
            {
                "label": model.label,
                "heads": dict(model.components),
                "layers": {name: layer_means(values) for name, values in model.components.items()},
            }
            for model in changes
        ],
        "claim": {
            "source": SOURCE,
            "below": CLAIM,
            "rows": [
                {
                    **vars(row),
                    "difference": None if math.isinf(row.difference) else row.difference,
                    "holds": row.holds,
                }
                for row in evenness(changes)
            ],
        },
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
