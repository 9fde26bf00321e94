"""The reason why stored weights do not fit a model, in one line."""

from __future__ import annotations

from torch import Tensor, nn


def describe_misfit(model: nn.Module, state: dict[str, Tensor]) -> str | None:
    """Explain in one line why `state` does not fit `model`; None if it fits."""
    own = model.state_dict()
    for key in own.keys() & state.keys():
        if own[key].shape != state[key].shape and "embed_tokens" in key:
            return (
                f"{key}: the checkpoint's dictionary and width are {tuple(state[key].shape)}, "
                f"the model's {tuple(own[key].shape)}; use the dictionary that it was trained with"
            )
    for key, tensor in own.items():
        if key in state and state[key].shape != tensor.shape:
            return (
                f"{key}: the checkpoint has shape {tuple(state[key].shape)}, "
                f"the model {tuple(tensor.shape)}; the architectures differ"
            )
    missing, unknown = own.keys() - state.keys(), state.keys() - own.keys()
    if missing:
        return (
            f"the checkpoint lacks {min(missing)} ({len(missing)} missing in all); "
            "the architectures differ"
        )
    if unknown:
        return (
            f"the checkpoint has {min(unknown)}, which the model lacks ({len(unknown)} in all); "
            "the architectures differ"
        )
    return None
