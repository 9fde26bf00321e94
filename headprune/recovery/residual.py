"""The sums that the outputs of sub-layers are added to, found by following a forward pass.

A residual connection adds a sub-layer's output to the hidden states before it. Libraries write this
addition in each model's own code, so it is found where it is computed: the output projection's
result is followed through dropout to the additions that take it up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headprune.model import Batch, RunnableModel

_ADDITIONS = ("add", "add_", "__add__", "__iadd__", "__radd__")

_UNCHANGED = ("dropout", "contiguous", "to")
"""Functions that return the same values, without dropout."""

_FACTS = ("__get__", "size", "dim", "numel", "get_device", "is_floating_point", "__len__")
"""Functions that read a tensor's facts, not its values."""


@dataclass
class Output:
    """The inputs and outputs of an output projection for a batch.

    Attributes:
        inputs: of the projection, any x U'd.
        result: its result, any x C.
        added: the sum of all that was added to it, any x C; None: nothing was, as it is.
    """

    inputs: Tensor
    result: Tensor
    added: Tensor | None = None


def passes_through(
    model: RunnableModel, projections: Sequence[nn.Linear], batch: Batch
) -> list[int]:
    """The number of times that a forward pass runs each of some output projections."""
    numbers = [0] * len(projections)

    def count(place: int) -> None:
        numbers[place] += 1

    with ExitStack() as hooks:
        for place, projection in enumerate(projections):
            hook = projection.register_forward_hook(lambda *_, place=place: count(place))
            hooks.callback(hook.remove)
        model.run(batch)
    return numbers


def outputs_of(
    model: RunnableModel,
    projections: Sequence[nn.Linear],
    batch: Batch,
    *,
    passes: int = 1,
    with_sums: bool = False,
) -> list[Output]:
    """Run a model up to the last pass through some output projections.

    Args:
        model: the model, without dropout.
        projections: output projections in the order in which they run.
        batch: a batch of it.
        passes: the number of times that a forward pass runs each of them.
        with_sums: run on to the additions that take up the results, for ``Output.added``.
    """
    follower = _Follower(passes * len(projections))

    def keep(_: nn.Module, inputs: tuple[Tensor, ...], result: Tensor) -> None:
        follower.begin(inputs[0], result, followed=with_sums)

    with ExitStack() as contexts:
        for projection in projections:
            contexts.callback(projection.register_forward_hook(keep).remove)
        if with_sums:
            contexts.enter_context(follower)
        with suppress(_Reached):
            model.run(batch)
    return follower.outputs


class _Reached(Exception):
    """Ends a forward pass once all requested outputs are known."""


class _Follower(TorchFunctionMode):
    """Follows the results of output projections to the sums that they become part of.

    Args:
        number: how many results there will be.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.outputs: list[Output] = []
        self._number = number
        self._followed: list[tuple[Tensor, Output]] = []  # the latest sum, and its output

    def begin(self, inputs: Tensor, result: Tensor, *, followed: bool) -> None:
        """Take up a result."""
        if not followed:
            self.outputs.append(Output(inputs, result))
            self._stop_if_done()
            return
        # A copy: some models add to the result in place.
        output = Output(inputs, result.clone())
        self.outputs.append(output)
        self._followed.append((result, output))

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Follow the results through one function of torch."""
        kwargs = kwargs or {}
        for place, (followed, output) in enumerate(self._followed):
            if not any(each is followed for each in (*args, *kwargs.values())):
                continue
            name = getattr(func, "__name__", "")
            if name in _FACTS:
                break
            if name in _ADDITIONS and len(args) == 2 and not kwargs:
                other = args[1] if args[0] is followed else args[0]
                if isinstance(other, Tensor) and other.shape == followed.shape:
                    output.added = other.clone() if output.added is None else output.added + other
                    self._followed[place] = (func(*args), output)
                    return self._followed[place][0]
            if name in _UNCHANGED:
                result = func(*args, **kwargs)
                if result.shape == followed.shape:
                    self._followed[place] = (result, output)
                    return result
            del self._followed[place]  # another use of it: the sum is complete
            self._stop_if_done()
            break
        return func(*args, **kwargs)

    def _stop_if_done(self) -> None:
        if len(self.outputs) == self._number and not self._followed:
            raise _Reached
