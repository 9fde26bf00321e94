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
    # These two moved between NumPy's versions; the pickles themselves know where they are.
    array: Any = np.ndarray(0).__reduce__()[0]
    number: Any = np.float64(0).__reduce__()[0]
    torch.serialization.add_safe_globals(
        [
            argparse.Namespace,
            # --eval-bleu keeps sacreBLEU's counts as NumPy numbers and arrays
            array,
            np.ndarray,
            np.dtype,
            type(np.dtype(np.int64)),
            type(np.dtype(np.float64)),
            number,
        ]
    )
