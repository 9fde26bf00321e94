"""The same number of units in each layer of a component.

Runtimes with one number of heads for all layers of a stack, such as CTranslate2, fill up smaller
layers, so that only such plans make them faster.
"""

from __future__ import annotations

from headprune.budget import Budget
from headprune.components import LAYERS, unit_name
from headprune.errors import UsageError
from headprune.plan import Shape, is_whole
from headprune.select.ranking import Keep


def even_share(shape: Shape, budget: Budget) -> dict[str, list[int]]:
    """The units that each layer keeps if each gives up the same share.

    Args:
        shape: for each component whose units compete, the units of each layer of the unpruned
            model.
        budget: the share of units to prune, rounded for a layer as for a whole model.

    Returns:
        The number of kept units of each layer, as ``keep`` of ``keep_first``.

    Raises:
        UsageError: a budget of parameters or FLOPs, layers as units, or layers of unequal size.
    """
    if budget.of != "units":
        raise UsageError(f"--even goes with a share of units, not with {budget}")
    _require_even(shape)
    return {name: [budget.number_kept(layers[0])] * len(layers) for name, layers in shape.items()}


def evenly_divided(keep: Keep, shape: Shape) -> dict[str, list[int]]:
    """Divide the number of units that each component keeps into equal parts.

    Args:
        keep: one number of units for each component to prune.
        shape: as in ``even_share``, also of other components.

    Returns:
        The number of kept units of each layer.

    Raises:
        UsageError: a number that is not a multiple of the number of layers, numbers of single
            layers, layers as units, or an unknown component.
    """
    counts = {}
    for name, total in keep.items():
        if name not in shape:
            raise UsageError(f"{name}: unknown component, it is one of {', '.join(shape)}")
        _require_even({name: shape[name]})
        depth = len(shape[name])
        if not is_whole(total):
            raise UsageError(
                f"--even takes one number of {unit_name(name)}s for {name}, not {total}"
            )
        each, rest = divmod(int(total), depth)  # type: ignore[arg-type]
        if rest:
            raise UsageError(
                f"--even: {total} {unit_name(name)}s of {name} do not divide into {depth} equal "
                f"layers; {each * depth} and {(each + 1) * depth} do"
            )
        counts[name] = [each] * depth
    return counts


def _require_even(shape: Shape) -> None:
    """Check that the layers of each component have equally many units before pruning."""
    for name, layers in shape.items():
        if name in LAYERS:
            raise UsageError(f"--even: {name} has one unit a layer, the layer itself")
        if len(set(layers)) > 1:
            raise UsageError(f"--even: the layers of {name} have unequal numbers of units")
