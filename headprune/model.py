"""Models that can be pruned, as the core sees them: protocols that the plugins implement.

- ``PrunableModel``: a file or folder, as ``headprune.open_model`` opens it.
- ``RunnableModel``: a model in memory that runs on batches; scores and gates are computed on it.
- ``PrunableSublayer`` and ``PrunableLayer``: the parts of it whose units can be pruned.

Scores, gates, costs and comparisons are written once, against these protocols. A backend
implements what differs between libraries: the place of sub-layers, the call and the batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from headprune.cost import Sizes
from headprune.errors import UsageError
from headprune.plan import PruningPlan, Shape

Batch = Any
"""A batch of the plugin's library: a dict of tensors, or one of dicts."""

Batches = Iterable[Batch]

See = Callable[[str, int, Tensor], None]
"""A callback for the component, the layer and the attention weights B x H' x T x S of a batch."""


class Part(Protocol):
    """A sub-layer with its units, or a layer, which is one unit."""

    @property
    def units(self) -> int:
        """The number of units of the unpruned part."""

    @property
    def kept(self) -> tuple[int, ...]:
        """The units that are kept, by their numbers in the unpruned model."""

    @property
    def present(self) -> tuple[int, ...]:
        """The units that have weights."""

    def weights_by_unit(self) -> Iterable[Tensor]:
        """The weights that belong to units: tensors of shape units present x any."""


class Stream(Protocol):
    """A stream of hidden states to which the units of a sub-layer write."""

    @property
    def output(self) -> nn.Linear:
        """The output projection; each unit owns ``unit_size`` columns of its weight."""

    @property
    def unit_size(self) -> int:
        """The width of one unit: d for a head, 1 for a neuron."""

    def as_columns(self, weight: Tensor) -> Tensor:
        """A tensor laid out as the weight of ``output``, as C x U'd.

        A view of its transpose where the projection stores that (transformers' ``Conv1D``).
        """


class PrunableSublayer(Part, Stream, Protocol):
    """One attention (whose units are heads) or one feed-forward sub-layer (neurons).

    As a ``Stream`` it is that of the model's hidden states. Backends may add a property
    ``companions``; see ``companions_of``.
    """

    @property
    def module(self) -> nn.Module:
        """The module that computes the sub-layer up to its output projection, or all of it."""


def companions_of(sublayer: PrunableSublayer) -> tuple[Stream, ...]:
    """The further streams to which the units of a sub-layer write, such as the layout of LiLT.

    In a forward pass their output projections run after the sub-layer's own. Empty for most models.
    """
    companions: tuple[Stream, ...] = getattr(sublayer, "companions", ())
    return companions


def streams_of(sublayer: PrunableSublayer) -> tuple[Stream, ...]:
    """All streams to which the units of a sub-layer write, its own first."""
    return (sublayer, *companions_of(sublayer))


class PrunableLayer(Protocol):
    """One layer of an encoder or decoder, which is pruned as a whole.

    Backends may add a property ``hidden_states``; see ``hidden_states_of``.
    """

    @property
    def module(self) -> nn.Module:
        """The layer: its input and its (first) output are hidden states of one shape."""

    @property
    def is_kept(self) -> bool:
        """True if the layer is computed and its output is passed on."""


def hidden_states_of(layer: PrunableLayer) -> tuple[str, ...]:
    """The names of a layer's first arguments: the hidden states of each of its streams.

    The layer returns new ones in the same order. Most layers have one stream.
    """
    names: tuple[str, ...] = getattr(layer, "hidden_states", HIDDEN_STATES)
    return names


HIDDEN_STATES = ("hidden_states",)
"""The arguments with hidden states of a layer with one stream."""


@dataclass(frozen=True)
class Outcome:
    """The loss and the correctness of each example of a batch.

    Attributes:
        losses: B.
        correct: B, whether the prediction is right (bool), or the share of an example's predictions
            that are (float); None where predictions are not right or wrong.
        weights: B, the weight of each example in means over examples; None for 1 each. Copies of
            one example with other labels have the probabilities of these.
    """

    losses: Tensor
    correct: Tensor | None = None
    weights: Tensor | None = None


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model without dropout, within this context."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


class RunnableModel(Protocol):
    """A model in memory, and how its library runs it.

    Attributes:
        batch_dim: the batch dimension of hidden states: 0 in B x T x C, 1 in T x B x C.
    """

    batch_dim: int

    @property
    def sublayers(self) -> Mapping[str, Sequence[PrunableSublayer]]:
        """The sub-layers of each component of heads or neurons, from the bottom to the top."""

    @property
    def layers(self) -> Mapping[str, Sequence[PrunableLayer]]:
        """The layers of each component of whole layers, from the bottom to the top."""

    def evaluating(self) -> AbstractContextManager[None]:
        """The model without dropout, within this context."""

    def run(self, batch: Batch) -> None:
        """Run the model on a batch for the sake of hooks; labels are not needed."""

    def outcome(self, batch: Batch) -> Outcome:
        """Run the model on examples with their labels.

        Raises:
            DataError: no labels.
            UsageError: the model has no outputs for labels.
        """

    def attend(self, batch: Batch, see: See) -> None:
        """Run the model and show the weights of every attention that has heads."""

    def attending(self) -> AbstractContextManager[None]:
        """A context for ``attend``, in which the attention implementation returns weights."""

    def queries(self, component: str, batch: Batch) -> Tensor:
        """Mask of the component's queries: B x T, bool; true for real tokens, false for padding."""

    def keys(self, component: str, batch: Batch) -> Tensor:
        """Token numbers of the component's keys, B x S; -1 where there is padding."""

    def is_causal(self, component: str) -> bool:
        """True if each token of the component attends to itself and to those before it alone."""

    @property
    def special_tokens(self) -> frozenset[int]:
        """Numbers of tokens that stand for no text: separators, beginning and end."""

    def skipped(self, component: str, layer: int) -> Sequence[nn.Module]:
        """Modules that can be skipped once the outputs of ``reused`` are cached."""

    def reused(self, component: str, layer: int) -> Sequence[nn.Module]:
        """Modules that run before this sub-layer and do not depend on its units; the sub-layer and
        all later modules depend on their outputs alone.
        """

    def last_mixing(self) -> nn.Module | None:
        """The module after which tokens no longer interact; its output is hidden states.

        None where there is no such module, or it is not known.
        """

    def repeat_batch(self, batch: Batch, times: int) -> Batch:
        """The batch that holds ``batch`` ``times`` times, one copy after the other."""

    def repeat_output(self, module: nn.Module, output: Any, times: int) -> Any:
        """The same for the output of one of ``reused``, or of a sub-layer."""


@runtime_checkable
class PrunableModel(Protocol):
    """A model's file or folder, or a pruned model that was read from one.

    Backends may add the properties ``architecture``, ``computed_plan`` and ``dtype``; see
    ``architecture_of``, ``computed_plan_of`` and ``dtype_of``.
    """

    @property
    def path(self) -> Path:
        """The file or folder that was read."""

    @property
    def shape(self) -> Shape:
        """The units of each layer of the unpruned model, of every component that it has."""

    @property
    def plan(self) -> PruningPlan:
        """The units that are kept: all components of heads, others where some are pruned."""

    @property
    def form(self) -> str | None:
        """The form of the pruned units; see ``headprune.form.Form``."""

    @property
    def sizes(self) -> Sizes:
        """The widths of the model."""

    @property
    def parameters(self) -> int:
        """The number of parameters; those that are tied to one another count once."""

    @property
    def unpruned_parameters(self) -> int:
        """The number of parameters before anything was removed."""

    def parameters_with(self, plan: PruningPlan) -> int:
        """The number of parameters after pruning to ``plan``; see ``prune``."""

    @property
    def fingerprint(self) -> str:
        """A hash of the weights, which tells this model from others."""

    def prune(self, plan: PruningPlan, *, form: str = "remove") -> PrunableModel:
        """The model with only the units of ``plan``; the file or folder is not changed.

        Components that the plan does not name stay as they are.
        """

    def save(self, path: Path) -> None:
        """Write the model, whole or not at all."""


def require_no_uniform_heads(model: PrunableModel) -> None:
    """Raise a UsageError if a model that is to be pruned has heads of the form uniform."""
    if "uniform" in (model.form or ""):
        raise UsageError(
            f"{model.path}: has uniform heads, which would be removed with the pruned ones; give "
            "the unpruned model"
        )


def architecture_of(model: PrunableModel) -> Mapping[str, object]:
    """The values that tell architectures of the same units and widths apart, such as a type.

    Empty where the backend does not know it.
    """
    values: Mapping[str, object] = getattr(model, "architecture", {})
    return values


def computed_plan_of(model: PrunableModel) -> PruningPlan:
    """The units that a forward pass computes: also pruned ones that are masked or uniform.

    The kept units where the backend knows no other form than the removal of weights.
    """
    plan: PruningPlan | None = getattr(model, "computed_plan", None)
    return model.plan if plan is None else plan


def dtype_of(model: PrunableModel) -> str | None:
    """The type of the weights that a model computes with, such as ``bfloat16``.

    None where the backend does not know it.
    """
    dtype: str | None = getattr(model, "dtype", None)
    return dtype
