"""What a plugin tells of a model so that its heads can be scored: two protocols.

All scores are worked out here, once for every library; what differs between libraries is where
a model keeps its attentions, how it is run, and what its batches are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

Batch = Any
"""What the plugin's model takes: a dict of tensors, or one of dicts."""

Batches = Iterable[Batch]

See = Callable[[str, int, Tensor], None]
"""Takes the component, the layer and the attention weights B x H' x T x S of one batch."""


class Attention(Protocol):
    """One attention of a model."""

    @property
    def module(self) -> nn.Module:
        """The module that computes it."""

    @property
    def output(self) -> nn.Linear:
        """The output projection, whose columns belong to heads."""

    @property
    def head_size(self) -> int:
        """d, the width of one head."""

    @property
    def heads(self) -> int:
        """H, how many heads there were before anything was pruned."""

    @property
    def kept(self) -> tuple[int, ...]:
        """The heads that are left, by their numbers in the unpruned model."""

    @property
    def present(self) -> tuple[int, ...]:
        """The H' heads that have weights: those kept, and masked or uniform ones."""

    def weights_by_head(self) -> Iterable[Tensor]:
        """All that belongs to heads, W_q, W_k, W_v and W_o: H' x any, each."""


@dataclass(frozen=True)
class Outcome:
    """What a model made of each example of a batch.

    Attributes:
        losses: B.
        correct: B, whether the prediction is right; None where that is not a question of yes or
            no.
    """

    losses: Tensor
    correct: Tensor | None = None


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model without dropout, within this context."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


class ScoredModel(Protocol):
    """A model and how its library runs it.

    Attributes:
        batch_dim: which dimension of hidden states is the batch: 0 in B x T x C, 1 in T x B x C.
    """

    batch_dim: int

    @property
    def attentions(self) -> Mapping[str, Sequence[Attention]]:
        """For each component, the attention of each layer, the bottom first."""

    def evaluating(self) -> AbstractContextManager[None]:
        """The model without dropout, within this context."""

    def outcome(self, batch: Batch) -> Outcome:
        """Run the model on examples with their labels.

        Raises:
            DataError: no labels.
            UsageError: the model has no outputs for labels.
        """

    def attend(self, batch: Batch, see: See) -> None:
        """Run the model and show the weights of every attention that has heads."""

    def attending(self) -> AbstractContextManager[None]:
        """A context for ``attend``: with an implementation of attention that has weights."""

    def queries(self, component: str, batch: Batch) -> Tensor:
        """Which positions of the component's queries are real tokens: B x T, bool."""

    def keys(self, component: str, batch: Batch) -> Tensor:
        """Token numbers of the component's keys, B x S; -1 where there is padding."""

    @property
    def special_tokens(self) -> frozenset[int]:
        """Numbers of tokens that stand for no text: separators, beginning and end."""

    def skipped(self, component: str, layer: int) -> Sequence[nn.Module]:
        """Modules whose output no one needs who has the outputs of ``reused``."""

    def reused(self, component: str, layer: int) -> Sequence[nn.Module]:
        """Modules that run before this attention, on which its heads have no influence, and whose
        outputs are all that it and what follows depend on.
        """

    def last_mixing(self) -> nn.Module | None:
        """The last module in which tokens may look at one another, or one soon after it: what comes
        later treats each token by itself. Its output is hidden states. None where that is not so,
        or not known.
        """

    def repeat_batch(self, batch: Batch, times: int) -> Batch:
        """The batch that holds ``batch`` so many times, one after the other."""

    def repeat_output(self, module: nn.Module, output: Any, times: int) -> Any:
        """The like for the output of one of ``reused``, or of an attention."""
