"""The plan that a training shares with the checkpoint that it resumes from.

The state of the optimizer belongs to the units of the checkpoint. With other units fairseq ends in
the optimizer, or, where the training has reached its end, keeps the model as it was.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from fairseq_plugin.checkpoints import Options
from fairseq_plugin.options import check_types, resolve_plan
from fairseq_plugin.shape import model_shape
from headprune.errors import UsageError
from headprune.plan import PruningPlan


def require_same_plan(args: Any, options: Options, *, name: str, remedy: str, path: str) -> None:
    """Check that a training's plan is that of the checkpoint that it resumes from.

    Args:
        args: the options of the model to train.
        options: the options of the model in the checkpoint.
        name: the training that is resumed, the beginning of the error message.
        remedy: what to do about it, the end of the error message.
        path: the checkpoint, for error messages about its plan.

    Raises:
        UsageError: the plans keep different units, or the form of the pruned heads differs.
    """
    shape = model_shape(args)
    if model_shape(Namespace(**options.values)) != shape:
        return  # of version 0.1.0, whose plans have the number of the remaining layers
    check_types(args)
    asked = resolve_plan(args)
    text = options.get("head_plan")
    stored = PruningPlan.from_json(text, source=path) if text else PruningPlan.full(shape)
    stored = stored.normalised(shape)
    if asked != stored:
        counts = f"{stored} in its checkpoint, {asked} here"
        if str(asked) == str(stored):
            counts = f"other units, as many in each layer: {asked}"
        raise UsageError(f"{name} of another plan ({counts}); {remedy}")
    form, stored_form = (str(each) for each in (args.head_form, options.get("head_form", "remove")))
    if form != stored_form and not asked.is_full:
        raise UsageError(
            f"{name} of another form (--head-form {stored_form} in its checkpoint, {form} here); "
            f"{remedy}"
        )
