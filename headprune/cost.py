"""The cost of units: parameters, and floating-point operations of one forward pass."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from headprune.budget import USUAL_LENGTH, length_of_flops
from headprune.components import HEADS, LAYERS, layers_of, side_of
from headprune.errors import UsageError
from headprune.plan import PruningPlan, Shape


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Widths of a Transformer; the defaults are Transformer-Base (Vaswani et al. 2017).

    Attributes:
        encoder_width, decoder_width: C, of embeddings and layers.
        encoder_feed_forward, decoder_feed_forward: inner widths.
        encoder_head_dim, decoder_head_dim: d, the width of one head; of a group of query heads that
            share one head of keys and values, the width of all its queries.
        vocabulary: of the decoder's output projection; 0 for a model without one.
        encoder_heads, decoder_heads: heads of a layer; None: as many as make up the layer's width.
        encoder_key_dim, decoder_key_dim: the width of one head's keys, and of its values; None: d.
        encoder_projections, decoder_projections: matrices of a feed-forward sub-layer, 3 if gated.
        encoder_head_parameters, decoder_head_parameters: of one head; None: as ``head_parameters``
            computes it for a plain layer, with biases.
        encoder_neuron_parameters, decoder_neuron_parameters: of one neuron; None likewise.
        encoder_layer_parameters, decoder_layer_parameters: of a layer without units: norms and the
            biases of output projections; None likewise.
        cross_heads: heads of a decoder layer's attention to the encoder, for plans that drop the
            layer and do not name them; None: there are none.
        encoder_positions: the number of positions of each of the encoder's inputs, where the model
            fixes it: of an image, its patches and the tokens beside them; None: texts of any
            length.
        encoder_passes: how often a forward pass runs each of the encoder's layers, where layers
            share weights and are one layer of a plan (ALBERT); None: once, as no layers do.
        encoder_companion_width, encoder_companion_head_dim: C and d in a second stream of hidden
            states to which the encoder's heads write too; 0 where there is none.
        encoder_companion_weights: further weights of a layer that no unit owns and that every
            position is multiplied by: that stream's feed-forward sub-layer, or an adapter (X-MOD).
        encoder_relative_positions: rows of the table of relative positions that every layer
            projects and multiplies with its queries or keys (DeBERTa-v2); 0 without any.
        encoder_relative_projections, encoder_relative_products: how often a layer projects the
            table, and its number of products with the outcome.
        encoder_output_weights: weights of the layers after an encoder without a decoder that every
            position is multiplied by, such as those that predict masked tokens; 0 without any.
        uncounted: the part of the model, in words, whose matrix products are not counted, so that
            its FLOPs are not known; None: there is none.
    """

    encoder_width: int = 512
    decoder_width: int = 512
    encoder_feed_forward: int = 2048
    decoder_feed_forward: int = 2048
    encoder_head_dim: int = 64
    decoder_head_dim: int = 64
    vocabulary: int = 32000
    encoder_heads: int | None = None
    decoder_heads: int | None = None
    encoder_key_dim: int | None = None
    decoder_key_dim: int | None = None
    encoder_projections: int = 2
    decoder_projections: int = 2
    encoder_head_parameters: int | None = None
    decoder_head_parameters: int | None = None
    encoder_neuron_parameters: int | None = None
    decoder_neuron_parameters: int | None = None
    encoder_layer_parameters: int | None = None
    decoder_layer_parameters: int | None = None
    cross_heads: int | None = None
    encoder_positions: int | None = None
    encoder_passes: tuple[int, ...] | None = None
    encoder_companion_width: int = 0
    encoder_companion_head_dim: int = 0
    encoder_companion_weights: int = 0
    encoder_relative_positions: int = 0
    encoder_relative_projections: int = 0
    encoder_relative_products: int = 0
    encoder_output_weights: int = 0
    uncounted: str | None = None

    def of(self, component: str, name: str) -> int | None:
        """A size of the encoder or of the decoder, by the side that a component is on."""
        value: int | None = getattr(self, f"{side_of(component)}_{name}")
        return value


def head_parameters(component: str, sizes: Sizes) -> int:
    """Parameters of one head: its rows of W_q, W_k, W_v with biases, its columns of W_o."""
    given = sizes.of(component, "head_parameters")
    if given is not None:
        return given
    query, key, d, key_dim = _widths(component, sizes)
    return d * 2 * query + 2 * key_dim * key + d + 2 * key_dim


def neuron_parameters(component: str, sizes: Sizes) -> int:
    """Parameters of one neuron: its row of W_1 and bias, its column of W_2."""
    given = sizes.of(component, "neuron_parameters")
    return 2 * _width(component, sizes) + 1 if given is None else given


def attention_parameters(plan: PruningPlan, sizes: Sizes) -> int:
    """Parameters of all attention that ``plan`` keeps, the output projections' biases included.

    An attention without heads keeps that bias alone.
    """
    return sum(
        sum(counts) * head_parameters(component, sizes) + len(counts) * _biases(component, sizes)
        for component, counts in plan.counts.items()
        if component in HEADS
    )


def prunable_parameters(plan: PruningPlan, sizes: Sizes) -> int:
    """Parameters, after pruning, of the sub-layers and layers that ``plan`` decides on.

    Sub-layers without units keep the bias of their output projection. With a plan that decides on
    layers, everything in them counts, layer norms too, and nothing of dropped ones.
    """
    plan = _completed(plan, sizes).without_units_of_dropped_layers()
    total = 0
    for component, counts in plan.counts.items():
        width = _width(component, sizes)
        rest = sizes.of(component, "layer_parameters")
        if component in LAYERS:
            norms = 3 if "ED" in plan.counts and side_of(component) == "decoder" else 2
            total += sum(counts) * (norms * 2 * width if rest is None else rest)
            continue
        unit = (head_parameters if component in HEADS else neuron_parameters)(component, sizes)
        total += sum(counts) * unit
        layers = plan.counts.get(layers_of(component))
        if layers is None:
            total += len(counts) * _biases(component, sizes)
        elif rest is None:  # else the bias of the output projection is a part of the layer's rest
            total += sum(layers) * width
    return total


def pruned_parameters(plan: PruningPlan, sizes: Sizes) -> int:
    """The number of parameters that the model loses by ``plan``.

    Exact for plain layers with biases everywhere, and where the sizes have the parameters of heads,
    neurons and layers.
    """
    full = PruningPlan.full(plan.units)
    return prunable_parameters(full, sizes) - prunable_parameters(plan, sizes)


def unit_cost(measure: str, *, sizes: Sizes, shape: Shape) -> Callable[[PruningPlan], int]:
    """Return a function that computes the cost of the units that a plan for ``shape`` keeps.

    Parameters that no plan prunes, such as embeddings and the biases of output projections, are
    not counted.

    Args:
        measure: ``parameters``, ``flops`` of a forward pass over 30 tokens or one image, or
            ``flops at 65 tokens``; with a decoder, of a pass over as many tokens on both sides.
        sizes: the sizes of the model.
        shape: the units of the components to prune.

    Raises:
        UsageError: FLOPs of a model whose layers run unequally often, so that units of one
            component cost unequally much; FLOPs that are not known; or a length for a model that
            reads a fixed number of positions.
    """
    length = length_of_flops(measure)
    count: Callable[[PruningPlan, Sizes], int]
    if length is None:
        count = {"parameters": prunable_parameters}[measure]
    else:
        _require_countable(measure, sizes)
        count = partial(forward_flops, source=length, target=length)
    empty = {name: [()] * len(layers) for name, layers in shape.items()}
    least = count(PruningPlan(kept=empty, units=shape), sizes)
    return lambda plan: count(plan, sizes) - least


def _require_countable(measure: str, sizes: Sizes) -> None:
    """Check that FLOPs of a text of the measure's length can be shared among a model's units."""
    if sizes.uncounted is not None:
        raise UsageError(
            f"budget of FLOPs: {sizes.uncounted} are not counted; give a budget of parameters"
        )
    passes = sizes.encoder_passes or (1,)
    if len(set(passes)) > 1:
        raise UsageError(
            f"budget of FLOPs: layers that share weights run {', '.join(map(str, passes))} times, "
            "and have to run equally often; give a budget of parameters"
        )
    if sizes.encoder_positions and measure != "flops":
        raise UsageError(
            f"budget of {measure}: the model reads {sizes.encoder_positions} positions of every "
            "input; give a budget of flops"
        )


def known_flops(
    plan: PruningPlan,
    sizes: Sizes,
    *,
    source: int = USUAL_LENGTH,
    target: int = USUAL_LENGTH,
    beam: int = 1,
) -> int | None:
    """Compute ``forward_flops``; None for a model whose operations are not all counted."""
    if sizes.uncounted is not None:
        return None
    return forward_flops(plan, sizes, source=source, target=target, beam=beam)


def forward_flops(
    plan: PruningPlan,
    sizes: Sizes,
    *,
    source: int = USUAL_LENGTH,
    target: int = USUAL_LENGTH,
    beam: int = 1,
) -> int:
    """Floating-point operations of one forward pass over a sentence pair, teacher-forced.

    Counts the matrix products, a multiplication and an addition as two: projections, scores and
    weighted sums of attention, feed-forward layers and the output projection. Embeddings,
    softmax and normalisation are left out, as is usual. The ratio of two plans is thus what the
    products saved give alone: softmax and masks, over B x H x T x T, shrink with the heads as well,
    so that measured speed can lie a little above it. Projections of a table of relative positions
    count in full, although the inputs of a batch share them. Beside
    self-attention that the plan names, all neurons of a component that it does not name count, and
    in a plan that decides on layers all heads.

    Args:
        source, target: lengths in tokens. A plan without decoder components uses ``source`` only,
            and ``sizes.encoder_positions`` counts in its place.
        beam: how many targets the decoder works on, of one source that is encoded once.
    """
    written = target * beam
    source = sizes.encoder_positions or source
    # Positions that ask, positions that are asked, and how many of these each one sees.
    lengths = {
        "ES": (source, source, source),
        "ED": (written, source, source),
        "DS": (written, written, target),
    }
    plan = _completed(plan, sizes).without_units_of_dropped_layers()
    total = 0
    for component, counts in plan.counts.items():
        if component in HEADS:
            query, key, d, key_dim = _widths(component, sizes)
            t, s, seen = lengths[component]
            projected = t * query * d + 2 * s * key * key_dim + t * d * query
            one_head = projected + 2 * t * seen * d
            if component == "ES":
                wide, narrow = sizes.encoder_companion_width, sizes.encoder_companion_head_dim
                one_head += 4 * t * wide * narrow + 2 * t * seen * narrow
                rows = sizes.encoder_relative_positions
                one_head += sizes.encoder_relative_projections * rows * query * d
                one_head += sizes.encoder_relative_products * t * rows * d
            total += _computed(component, counts, sizes) * one_head
    for component, attention, length in (("EF", "ES", source), ("DF", "DS", written)):
        neurons = _neurons(plan, component, attention, sizes)
        projections = sizes.of(component, "projections") or 2
        total += projections * neurons * length * _width(component, sizes)
    total += _encoder_layers(plan, sizes) * sizes.encoder_companion_weights * source
    total += source * sizes.encoder_output_weights
    if any(component in plan.counts for component in ("DS", "DF", "DL")):
        total += written * sizes.decoder_width * sizes.vocabulary
    return 2 * total


def _neurons(plan: PruningPlan, component: str, attention: str, sizes: Sizes) -> int:
    """The neurons that a stack computes; a plan that does not decide on them keeps them all."""
    if component in plan.counts:
        return _computed(component, plan.counts[component], sizes)
    width = sizes.encoder_feed_forward if component == "EF" else sizes.decoder_feed_forward
    layers = plan.counts.get(layers_of(component))
    if layers is None:
        layers = (1,) * len(plan.counts.get(attention, ()))
    return _computed(component, layers, sizes) * width


def _computed(component: str, counts: Sequence[int], sizes: Sizes) -> int:
    """The number of units that a forward pass computes, of ``counts`` units in each layer."""
    passes = sizes.encoder_passes if side_of(component) == "encoder" else None
    return sum(map(operator.mul, counts, passes)) if passes else sum(counts)


def _encoder_layers(plan: PruningPlan, sizes: Sizes) -> int:
    """The number of layers of the encoder that a forward pass computes."""
    depth = max((len(plan.counts.get(name, ())) for name in ("ES", "EF")), default=0)
    return _computed("EL", plan.counts.get("EL", (1,) * depth), sizes)


def _completed(plan: PruningPlan, sizes: Sizes) -> PruningPlan:
    """The plan with all units of the sub-layers in the layers that it decides on."""
    shape: dict[str, tuple[int, ...]] = {}
    for component in LAYERS:
        if component not in plan.units:
            continue
        depth = len(plan.units[component])
        if component == "EL":
            heads = sizes.encoder_heads or sizes.encoder_width // sizes.encoder_head_dim
            shape |= {"ES": (heads,) * depth}
            shape |= {"EF": (sizes.encoder_feed_forward,) * depth}
        else:
            heads = sizes.decoder_heads or sizes.decoder_width // sizes.decoder_head_dim
            shape |= {"DS": (heads,) * depth}
            shape |= {"DF": (sizes.decoder_feed_forward,) * depth}
            if sizes.cross_heads is not None:
                shape |= {"ED": (sizes.cross_heads,) * depth}
    # Layers of another kind have no neurons; their weights count with the rest of a layer.
    shape = {component: units for component, units in shape.items() if any(units)}
    return plan.completed(shape) if shape else plan


def _width(component: str, sizes: Sizes) -> int:
    """C, the width of the hidden states that a component's sub-layers read and write."""
    return sizes.encoder_width if side_of(component) == "encoder" else sizes.decoder_width


def _biases(component: str, sizes: Sizes) -> int:
    """The number of entries of the biases of a sub-layer's output projections."""
    companion = sizes.encoder_companion_width if component == "ES" else 0
    return _width(component, sizes) + companion


def _widths(component: str, sizes: Sizes) -> tuple[int, int, int, int]:
    """The widths of what queries (and the output) and keys are projected from, and of a head.

    The last two are those of one head's queries and of its keys.
    """
    d = sizes.of(component, "head_dim") or 0
    key_dim = sizes.of(component, "key_dim")
    key = sizes.encoder_width if component == "ED" else _width(component, sizes)
    return _width(component, sizes), key, d, d if key_dim is None else key_dim
