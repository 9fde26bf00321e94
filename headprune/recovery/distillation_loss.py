"""The losses of distillation.

Outputs are compared with soft targets (Hinton et al. 2015): the teacher's and the student's
distributions at temperature T, times T^2, so that gradients keep their size when T changes.
Hidden states are compared after each layer that both models have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from headprune.errors import UsageError
from headprune.gates.hooks import is_skipped
from headprune.model import PrunableLayer

Layers = Mapping[str, Sequence[PrunableLayer]]
"""The layers of each component of whole layers; see ``RunnableModel.layers``."""

LayerOutputs = dict[tuple[str, int], Tensor]
"""Hidden states by component and number of the layer in the unpruned model."""


def require_comparable(student: Layers, teacher: Layers) -> None:
    """Check that hidden states of two models can be compared.

    Raises:
        UsageError: their unpruned models have other numbers of layers, or no layer is in both.
    """
    counts = [{name: len(parts) for name, parts in each.items()} for each in (student, teacher)]
    if counts[0] != counts[1]:
        shown = [", ".join(f"{name} {n}" for name, n in each.items()) for each in counts]
        raise UsageError(
            f"--distill-hidden: the teacher has other layers ({shown[1]}) than the model "
            f"({shown[0]}); leave it out, or give the unpruned model"
        )
    kept = [
        {(name, n) for name, parts in each.items() for n, part in enumerate(parts) if part.is_kept}
        for each in (student, teacher)
    ]
    if not kept[0] & kept[1]:
        raise UsageError("--distill-hidden: no layer is in both the model and its teacher")


@contextmanager
def recorded(layers: Layers) -> Iterator[LayerOutputs]:
    """The outputs of the kept layers that run, and are not skipped, within this context."""
    outputs: LayerOutputs = {}

    def record(component: str, layer: int) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if is_skipped(module):  # its output is its input
                outputs.pop((component, layer), None)
            else:
                outputs[component, layer] = output if isinstance(output, Tensor) else output[0]

        return hook

    with ExitStack() as hooks:
        for component, parts in layers.items():
            for layer, part in enumerate(parts):
                if part.is_kept:
                    hook = part.module.register_forward_hook(record(component, layer))
                    hooks.callback(hook.remove)
        yield outputs


def hidden_difference(
    student: LayerOutputs,
    teacher: LayerOutputs,
    *,
    tokens: Callable[[str], Tensor],
    batch_dim: int,
) -> Tensor:
    """The mean squared difference of hidden states, over features, tokens and layers.

    Args:
        student, teacher: from ``recorded``; layers that one of them lacks (dropped ones, or those
            that LayerDrop has left out) are not compared.
        tokens: function from a component to the mask of its real tokens, B x T, bool.
        batch_dim: see ``RunnableModel``.

    Raises:
        UsageError: the models have other widths.
    """
    differences = []
    for key in sorted(student.keys() & teacher.keys()):  # sums in one order, equal in all runs
        if student[key].size(-1) != teacher[key].size(-1):
            raise UsageError(
                f"--distill-hidden: the teacher's hidden states have width {teacher[key].size(-1)},"
                f" the model's {student[key].size(-1)}; leave it out, or give the unpruned model"
            )
        mask = tokens(key[0]) if batch_dim == 0 else tokens(key[0]).transpose(0, 1)
        difference = student[key].float() - teacher[key].float()  # B x T x C, or T x B x C
        differences.append(difference[mask].square().mean())
    if not differences:
        # LayerDrop has left out every layer of this batch.
        return torch.zeros(())
    return torch.stack(differences).mean()
