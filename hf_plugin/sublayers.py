"""Attentions, feed-forward sub-layers and layers of a Hugging Face model: what can be pruned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from hf_plugin.cutting import in_rows, rows_of
from hf_plugin.dropped import DroppedLayer, hidden_states_of
from hf_plugin.head_names import FeedForwardNames, Names, note_unit_size, unit_size
from hf_plugin.position_bias import take_biases
from hf_plugin.pruned_files import store_by_head


@dataclass(frozen=True, kw_only=True)
class CompanionProjections:
    """The projections of an attention's companion stream; see ``CompanionNames``."""

    inputs: tuple[nn.Linear, ...]
    output: nn.Linear


@dataclass(frozen=True, kw_only=True)
class Attention:
    """One attention, whose units are heads. The kept heads are noted on ``module``.

    Attributes:
        inputs, queries: the projections, also those of a companion stream; see ``Names``.
    """

    module: nn.Module
    inputs: tuple[nn.Linear, ...]
    queries: tuple[nn.Linear, ...]
    output: nn.Linear
    names: Names
    companion: CompanionProjections | None = None

    @property
    def unit_size(self) -> int:
        """d, the width of one unit, as the module has it: of a head, or of a group's queries."""
        return unit_size(self.module, self.names)

    @property
    def companions(self) -> tuple[CompanionStream, ...]:
        """The companion streams to which the heads write too; see ``headprune.model``."""
        if self.companion is None:
            return ()
        return (CompanionStream(self, self.companion),)

    @property
    def outputs(self) -> tuple[nn.Linear, ...]:
        """The output projections of all streams."""
        return (self.output, *(each.output for each in self.companions))

    def as_columns(self, weight: Tensor) -> Tensor:
        """A tensor laid out as the output projection's weight, as C x U'd."""
        return in_rows(self.output, weight)

    @property
    def units(self) -> int:
        """The number of heads of the unpruned attention."""
        return int(getattr(self.module, "unpruned_heads", width_of(self.output) // self.unit_size))

    @property
    def kept(self) -> tuple[int, ...]:
        """The heads that are kept, by their numbers in the unpruned model."""
        heads = range(width_of(self.output) // self.unit_size)
        return tuple(getattr(self.module, "kept_heads", heads))

    @property
    def uniform(self) -> tuple[int, ...]:
        """The pruned heads that still average the values of all tokens, by the same numbers."""
        return tuple(getattr(self.module, "uniform_heads", ()))

    @property
    def present(self) -> tuple[int, ...]:
        """The heads that have weights."""
        return tuple(sorted((*self.kept, *self.uniform)))

    def weights_by_unit(self) -> Iterator[Tensor]:
        """The rows of W_q, W_k, W_v and the columns of W_o of each head: H' x any, each.

        Those of a companion stream too.
        """
        return _weights_by_unit(self)

    @property
    def key_size(self) -> int:
        """The width of the keys, and of the values, of one unit."""
        return self.rows_per_unit(self.inputs[len(self.names.inputs) - 1])

    @property
    def parameters_per_unit(self) -> int:
        """The number of weights and biases that a unit has: those that are gone without it."""
        return _parameters_per_unit(self)

    def rows_per_unit(self, linear: nn.Module) -> int:
        """The number of rows of one unit in a block of an input projection.

        In a group, several heads of queries share one head of keys and values.
        """
        for stream in self.companions:
            if any(linear is each for each in stream.inputs):
                return stream.unit_size
        group = self.names.group
        is_of_queries = any(linear is query for query in self.queries)
        if group is None or is_of_queries:
            return self.unit_size
        return self.unit_size // int(getattr(self.module, group))

    def set_heads(self, *, kept: tuple[int, ...], uniform: tuple[int, ...], heads: int) -> None:
        """Note which of the unpruned attention's ``heads`` heads are kept, and their number."""
        self.module.unpruned_heads = heads  # type: ignore[assignment]
        self.module.kept_heads = kept  # type: ignore[assignment]
        self.module.uniform_heads = uniform  # type: ignore[assignment]
        note_unit_size(self.module, self.names)
        take_biases(self.module, self.names.bias, self.present)
        present = len(self.present)
        for attribute, value in (
            (self.names.count, present),
            (self.names.width, present * self.unit_size),
        ):
            if attribute is not None:
                setattr(self.module, attribute, value)
        for linear in self.queries:
            store_by_head(linear, self.rows_per_unit(linear) if uniform else None)


@dataclass(frozen=True)
class CompanionStream:
    """The companion stream of an attention; implements ``headprune.model.Stream``."""

    attention: Attention
    projections: CompanionProjections

    @property
    def inputs(self) -> tuple[nn.Linear, ...]:
        """The stream's projections to queries, keys and values."""
        return self.projections.inputs

    @property
    def output(self) -> nn.Linear:
        """The stream's output projection."""
        return self.projections.output

    @property
    def unit_size(self) -> int:
        """The width of one head in this stream."""
        names = self.attention.names.companion
        assert names is not None
        return self.attention.unit_size // int(getattr(self.attention.module, names.shrink))

    def as_columns(self, weight: Tensor) -> Tensor:
        """A tensor laid out as the output projection's weight, as C x U'd."""
        return in_rows(self.output, weight)


@dataclass(frozen=True, kw_only=True)
class FeedForward:
    """One feed-forward sub-layer, whose units are neurons. The kept ones are noted on ``module``.

    A gated sub-layer has two rows for each neuron, in two blocks of its input projection.

    Attributes:
        companion: the projections of a companion stream's sub-layer, which is not pruned.
    """

    module: nn.Module
    inputs: tuple[nn.Linear, ...]
    output: nn.Linear
    names: FeedForwardNames
    companion: tuple[nn.Linear, ...] = ()

    @property
    def unit_size(self) -> int:
        """The width of one neuron."""
        return 1

    @property
    def outputs(self) -> tuple[nn.Linear, ...]:
        """The output projection."""
        return (self.output,)

    def as_columns(self, weight: Tensor) -> Tensor:
        """A tensor laid out as the output projection's weight, as C x U'd."""
        return in_rows(self.output, weight)

    @property
    def units(self) -> int:
        """The number of neurons of the unpruned sub-layer."""
        return int(getattr(self.module, "unpruned_neurons", width_of(self.output)))

    @property
    def kept(self) -> tuple[int, ...]:
        """The neurons that are kept, by their numbers in the unpruned model."""
        return tuple(getattr(self.module, "kept_neurons", range(width_of(self.output))))

    @property
    def is_pruned(self) -> bool:
        """True if some neurons are pruned."""
        return width_of(self.output) < self.units

    @property
    def present(self) -> tuple[int, ...]:
        """The neurons that have weights: those that are kept."""
        return self.kept

    def weights_by_unit(self) -> Iterator[Tensor]:
        """The rows of W_1 and the columns of W_2 of each neuron: N' x any, each."""
        return _weights_by_unit(self)

    @property
    def parameters_per_unit(self) -> int:
        """The number of weights and biases that a neuron has: those that are gone without it."""
        return _parameters_per_unit(self)

    def rows_per_unit(self, linear: nn.Module) -> int:
        """The number of rows of one neuron in a block of an input projection."""
        return 1

    def set_neurons(self, *, kept: tuple[int, ...], neurons: int) -> None:
        """Note which of the unpruned sub-layer's ``neurons`` neurons are kept."""
        self.module.unpruned_neurons = neurons  # type: ignore[assignment]
        self.module.kept_neurons = kept  # type: ignore[assignment]


Sublayer = Attention | FeedForward


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer of an encoder or decoder, which is dropped as a whole."""

    module: nn.Module

    @property
    def is_kept(self) -> bool:
        """True if the layer is computed; a dropped layer passes on its input."""
        return not isinstance(self.module, DroppedLayer)

    @property
    def hidden_states(self) -> tuple[str, ...]:
        """The arguments with the hidden states of its streams; see ``headprune.model``."""
        return hidden_states_of(self.module)


def width_of(output: nn.Module) -> int:
    """The number of columns of an output projection."""
    return rows_of(output).size(1)


def _parameters_per_unit(sublayer: Sublayer) -> int:
    total = sum(rows_of(output).numel() for output in sublayer.outputs)
    for linear in sublayer.inputs:
        total += rows_of(linear).numel() + (0 if linear.bias is None else linear.bias.numel())
    return total // max(1, len(sublayer.present))


def _weights_by_unit(sublayer: Sublayer) -> Iterator[Tensor]:
    units = len(sublayer.present)
    for linear in sublayer.inputs:
        for block in rows_of(linear).chunk(sublayer.names.blocks):
            yield block.unflatten(0, (units, -1)).flatten(1)
    for output in sublayer.outputs:
        yield rows_of(output).unflatten(1, (units, -1)).transpose(0, 1).flatten(1)
