"""The learned gates that a training shares with the checkpoint that it resumes from.

The state of the optimizer belongs to the parameters that were trained, and to the speed of gates.
With others fairseq ends in the optimizer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fairseq_plugin.checkpoints import Options
from fairseq_plugin.same_model import shown
from headprune.errors import UsageError


def require_same_gates(args: Any, options: Options, *, name: str, remedy: str) -> None:
    """Check that a training's gates are those of the checkpoint that it resumes from.

    Args:
        args: the options of the model to train.
        options: the options of the model in the checkpoint.
        name: the training that is resumed, the beginning of the error message.
        remedy: what to do about it, the end of the error message.

    Raises:
        UsageError: gates on other components, of another speed, or trained with and without the
            weights.
    """
    differences = "; ".join(_differences(vars(args), options.values))
    if differences:
        raise UsageError(f"{name} with other gates ({differences}); {remedy}")


def _differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[str]:
    gates = [_components(each.get("gates")) for each in (theirs, ours)]
    if not any(gates):
        return
    values: dict[str, list[object]] = {
        "--gates": [*gates],
        "--gates-only": [each.get("gates_only") for each in (theirs, ours)],
    }
    speeds = [f"{float(each.get('gates_speed') or 0):g}" for each in (theirs, ours)]
    if all(gates) and "0" not in speeds:  # 0 stands for a checkpoint that does not say it
        values["--gates-speed"] = [*speeds]
    for flag, (stored, asked) in values.items():
        if shown(stored) != shown(asked):
            yield f"{flag} {shown(stored)} in its checkpoint, {shown(asked)} here"


def _components(text: str | None) -> str:
    """The components with gates in one order; empty without gates."""
    return ",".join(sorted(name.strip().upper() for name in (text or "").split(",")))
