"""Types that fairseq puts into its checkpoints, for torch's ``weights_only`` loading.

From torch 2.6 on, torch.load refuses every type that is not known to be harmless, and fairseq's
own checkpoints hold such types. Naming them keeps the protection: a checkpoint is untrusted input.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch


def allow() -> None:
    """Let torch.load read the arguments and meters that fairseq saves beside the weights."""
    reconstruct: Any = np.ndarray(0).__reduce__()[0]  # moved between NumPy's versions
    torch.serialization.add_safe_globals(
        [
            argparse.Namespace,
            # --eval-bleu keeps sacreBLEU's counts as NumPy numbers and arrays
            reconstruct,
            np.ndarray,
            np.dtype,
            type(np.dtype(np.int64)),
            type(np.dtype(np.float64)),
            np.float64(0).__reduce__()[0],
        ]
    )
