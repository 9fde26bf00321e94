"""Fit stored weights to the heads, neurons and layers that a plan keeps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from fairseq_plugin.shape import ATTENTIONS, layers_present
from headprune.components import HEADS, NEURONS, layers_of, side_of, unit_name
from headprune.errors import DataError, UsageError
from headprune.plan import PruningPlan
from headprune.ranges import format_ranges
from headprune.surgery import COLUMNS, ROWS, cut

HeadForm = Literal["mask", "remove"]
HEAD_FORMS: tuple[HeadForm, ...] = ("mask", "remove")

HEAD_DIMENSION = {
    "q_proj.weight": ROWS,
    "k_proj.weight": ROWS,
    "v_proj.weight": ROWS,
    "q_proj.bias": ROWS,
    "k_proj.bias": ROWS,
    "v_proj.bias": ROWS,
    "out_proj.weight": COLUMNS,
}
"""The tensors of an attention that its heads share out, and along which dimension."""

NEURON_DIMENSION = {"fc1.weight": ROWS, "fc1.bias": ROWS, "fc2.weight": COLUMNS}
"""The tensors of a feed-forward sub-layer that its neurons share out, and the dimension."""

KEPT_HEADS = ".kept_heads"
"""The end of the names of tensors in which checkpoints of version 0.1.0 hold their plan again."""

_LAYER = re.compile(r"(encoder|decoder)\.layers\.(\d+)\.(.*)")


@dataclass(frozen=True, kw_only=True)
class StoredSublayer:
    """The tensors of one sub-layer among a checkpoint's weights.

    Attributes:
        component: the component of the sub-layer.
        layer: the number of its layer in the unpruned model.
        position: the index of its layer among the layers of the pruned model, as in module names.
    """

    component: str
    layer: int
    position: int

    @property
    def name(self) -> str:
        """The beginning of error messages."""
        return f"{self.component}: layer {self.layer}"

    @property
    def prefix(self) -> str:
        """The prefix of the tensors' names, including the final dot."""
        layer = f"{side_of(self.component)}.layers.{self.position}."
        return f"{layer}{ATTENTIONS[self.component][1]}." if self.component in HEADS else layer

    @property
    def dimensions(self) -> Mapping[str, int]:
        """The suffixes of the tensors' names, each with the dimension that units divide."""
        return HEAD_DIMENSION if self.component in HEADS else NEURON_DIMENSION

    @property
    def output(self) -> str:
        """The name of the output projection, without its parameter."""
        return self.prefix + ("out_proj" if self.component in HEADS else "fc2")


def stored_sublayers(plan: PruningPlan, form: str | None) -> Iterator[StoredSublayer]:
    """Every sub-layer of a model, whose plan names all components of heads and neurons."""
    for component in (*HEADS, *NEURONS):
        if component in plan.units:
            for position, layer in enumerate(layers_present(plan, component, form)):
                yield StoredSublayer(component=component, layer=layer, position=position)


def require_blocks(kept: int, *, neurons: int, block: int, name: str) -> None:
    """Check that quantisation noise divides the kept neurons of a layer into whole blocks.

    Args:
        kept: the number of kept neurons.
        neurons: the number of neurons of the unpruned layer, which is not checked.
        block: the size of a block (--quant-noise-pq-block-size).
        name: the component and the layer, for the message.

    Raises:
        UsageError: the last block would not be whole, or there is none.
    """
    if kept != neurons and (not kept or kept % block):
        raise UsageError(
            f"{name}: --quant-noise-pq needs a multiple of {block} neurons "
            f"(--quant-noise-pq-block-size), not {kept}"
        )


def fit_weights(
    weights: dict[str, Tensor],
    *,
    kept: PruningPlan,
    stored: PruningPlan | None,
    form: HeadForm,
    unit_sizes: Mapping[str, int],
) -> None:
    """Change a checkpoint's weights, in place, to those of the units that a plan keeps.

    Takes full weights (fairseq's own checkpoints too) and weights that lack some units already.
    Units are matched by number. Tensors that fit already stay as they are. So do tensors of another
    architecture, which the strict loading that follows reports.

    Args:
        weights: the weights by name.
        kept: the units to keep, of all components of the model.
        stored: the plan of the weights; None for full weights, and for those of ``kept``.
        form: ``remove`` cuts the weights; ``mask`` leaves them whole.
        unit_sizes: the rows or columns of one unit in each component: a head's width, or 1.

    Raises:
        DataError: a unit to keep is not in ``weights``, or the sizes are those of another model.
    """
    for name in [name for name in weights if name.endswith(KEPT_HEADS)]:
        del weights[name]
    sides = {
        side_of(component): _fit_layers(weights, component, kept=kept, stored=stored, form=form)
        for component in ("EF", "DF")
    }
    for sublayer in stored_sublayers(kept, form):
        stored_layers = sides[side_of(sublayer.component)]
        if stored_layers is None or f"{sublayer.output}.weight" not in weights:
            continue
        left: Sequence[int] | None = None
        if stored is not None:
            units = kept.units[sublayer.component][sublayer.layer]
            layers = stored.kept.get(sublayer.component)
            left = range(units) if layers is None else layers[stored_layers[sublayer.position]]
        fit_units(
            weights,
            sublayer,
            kept=kept.kept[sublayer.component][sublayer.layer],
            stored=left,
            units=kept.units[sublayer.component][sublayer.layer],
            unit_size=unit_sizes[sublayer.component],
            form=form,
        )


def _fit_layers(
    weights: dict[str, Tensor],
    component: str,
    *,
    kept: PruningPlan,
    stored: PruningPlan | None,
    form: HeadForm,
) -> Sequence[int] | None:
    """Leave out the layers that the model does not have, and renumber the others.

    Args:
        component: the component of neurons of the encoder or decoder to fit.

    Returns:
        The number of each layer in the plan of the weights; None if the weights have another
        architecture.
    """
    side = side_of(component)
    names = {name: match for name in weights if (match := _LAYER.match(name)) and match[1] == side}
    number = 1 + max((int(match[2]) for match in names.values()), default=-1)
    depth, wanted = len(kept.units[component]), layers_present(kept, component, form)
    stored_depth = number if stored is None else len(stored.units[_self_attention(component)])
    if stored_depth != depth:
        # Perhaps those of exactly the wanted layers: of the same model, or of version 0.1.0, which
        # numbered the remaining layers anew.
        return range(number) if number == len(wanted) == stored_depth else None
    left: Sequence[int] = range(depth)
    if stored is not None:
        left = layers_present(stored, _self_attention(component), "remove")
    present = range(depth) if number == depth else left
    if len(present) != number:
        return None
    needed = layers_present(kept, component, "remove")
    if lost := sorted(set(needed) - set(left)):
        raise DataError(
            f"{layers_of(component)}: layer {lost[0]} is to be kept, but the checkpoint keeps only "
            f"{len(left)} of {depth} layers ({', '.join(map(str, left)) or 'none'})"
        )
    if form == "mask" and number < depth:
        raise DataError(
            f"{layers_of(component)}: form mask needs all {depth} layers, the checkpoint has "
            f"{number}; use form remove"
        )
    positions = {present.index(layer): position for position, layer in enumerate(wanted)}
    fitted = {}
    for name, match in names.items():
        tensor, position = weights.pop(name), positions.get(int(match[2]))
        if position is not None:
            fitted[f"{side}.layers.{position}.{match[3]}"] = tensor
    weights.update(fitted)
    return wanted


def fit_units(
    weights: dict[str, Tensor],
    sublayer: StoredSublayer,
    *,
    kept: Sequence[int],
    stored: Sequence[int] | None,
    units: int,
    unit_size: int,
    form: HeadForm,
) -> None:
    """Leave out the units of one sub-layer that the model does not have.

    Args:
        kept: the units that shall stay.
        stored: the units that the checkpoint keeps; None if it does not tell.
        units: the number in the unpruned sub-layer.
        unit_size: rows and columns of a unit.
    """
    name, unit = sublayer.name, unit_name(sublayer.component)
    width = weights[f"{sublayer.output}.weight"].size(COLUMNS)
    full = units * unit_size
    if stored is None:
        stored = range(units) if width == full else kept
    if width not in (full, len(stored) * unit_size):
        if sublayer.component not in HEADS:
            return
        raise DataError(
            f"{name}: the checkpoint's attention is {width} wide, "
            f"{units} heads of {unit_size} are {full}"
        )
    if lost := sorted(set(kept) - set(stored)):
        shown = format_ranges(stored) if unit == "neuron" else ", ".join(map(str, stored))
        raise DataError(
            f"{name}: {unit} {lost[0]} is to be kept, but the checkpoint keeps only {len(stored)} "
            f"of {units} {unit}s ({shown or 'none'})"
        )
    present = range(units) if width == full else stored
    if form == "mask" and len(present) < units:
        raise DataError(
            f"{name}: form mask needs all {units} {unit}s, the checkpoint has {len(present)}; "
            "use form remove, or `headprune export --to fairseq` first"
        )
    wanted = present if form == "mask" else kept
    if list(wanted) == list(present):
        return
    places = {number: place for place, number in enumerate(present)}
    positions = [places[number] for number in wanted]
    for key, dim in sublayer.dimensions.items():
        weight = weights.get(sublayer.prefix + key)
        if weight is None:
            continue
        if not wanted and dim == ROWS:
            del weights[sublayer.prefix + key]  # there is no projection to no unit
        else:
            weights[sublayer.prefix + key] = cut(weight, positions, units=len(present), dim=dim)


def _self_attention(component: str) -> str:
    """The component of heads in the same stack; every plan of a model names it."""
    return "ES" if side_of(component) == "encoder" else "DS"
