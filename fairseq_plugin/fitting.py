"""Fitting an attention's stored weights to the heads that a plan keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from headprune.errors import DataError
from headprune.surgery import COLUMNS, ROWS, cut

HeadForm = Literal["mask", "remove"]
HEAD_FORMS: tuple[HeadForm, ...] = ("mask", "remove")

HEAD_DIMENSION = {
    "q_proj.weight": ROWS,
    "k_proj.weight": ROWS,
    "v_proj.weight": ROWS,
    "q_proj.bias": ROWS,
    "k_proj.bias": ROWS,
    "v_proj.bias": ROWS,
    "out_proj.weight": COLUMNS,
}
"""The tensors of an attention that its heads share out, and along which dimension."""


def fit_attention(
    state: dict[str, Tensor],
    prefix: str,
    *,
    kept: Sequence[int],
    num_heads: int,
    head_dim: int,
    form: HeadForm,
    name: str,
) -> None:
    """Change the weights under ``prefix`` of ``state``, in place, to those of the ``kept`` heads.

    Takes full weights (fairseq's own checkpoints too) and weights that lack some heads already;
    ``kept_heads``, stored beside them, tells which. What fits already stays as it is.

    Args:
        state: a checkpoint's weights by name.
        prefix: of the attention's names, with the dot at the end.
        kept: the heads that shall stay, sorted, in the unpruned attention's numbering.
        num_heads: of the unpruned attention.
        head_dim: d, the width of one head.
        form: ``remove`` cuts the weights; ``mask`` leaves them whole.
        name: the component and layer, to begin error messages with.

    Raises:
        DataError: a head that shall stay is not in ``state``, or the sizes are another model's.
    """
    full = num_heads * head_dim
    stored = state.get(f"{prefix}kept_heads")
    left = list(range(num_heads)) if stored is None else stored.tolist()
    width = state[f"{prefix}out_proj.weight"].size(COLUMNS)
    if width not in (full, len(left) * head_dim):
        raise DataError(
            f"{name}: the checkpoint's attention is {width} wide, "
            f"{num_heads} heads of {head_dim} are {full}"
        )
    lost = sorted(set(kept) - set(left))
    if lost:
        raise DataError(
            f"{name}: head {lost[0]} is to be kept, but the checkpoint keeps only {len(left)} of "
            f"{num_heads} heads ({', '.join(map(str, left)) or 'none'})"
        )
    present = list(range(num_heads)) if width == full else left
    if form == "mask" and len(present) < num_heads:
        raise DataError(
            f"{name}: form mask needs all {num_heads} heads, the checkpoint has {len(present)}; "
            "use form remove, or `headprune export --to fairseq` first"
        )
    wanted = present if form == "mask" else list(kept)
    if wanted != present:
        positions = [present.index(head) for head in wanted]
        for key, dim in HEAD_DIMENSION.items():
            weight = state.get(prefix + key)
            if weight is None:
                continue
            if not wanted and dim == ROWS:
                del state[prefix + key]  # an attention without heads has no such projection
            else:
                state[prefix + key] = cut(weight, positions, heads=len(present), dim=dim)
    state[f"{prefix}kept_heads"] = torch.tensor(tuple(kept), dtype=torch.long)
