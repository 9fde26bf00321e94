"""Types in fairseq's checkpoints that torch's ``weights_only`` loading has to accept.

Since torch 2.6, torch.load refuses types that are not registered as harmless, and fairseq's own
checkpoints contain some. Registering them keeps the protection for everything else: a checkpoint
is untrusted input.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from fairseq.logging import meters


def allow() -> None:
    """Let torch.load read the arguments and meters that fairseq saves beside the weights."""
    # The module of these two functions differs between versions of NumPy; pickles name it.
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
            # fairseq up to 0.9 keeps its meters themselves, of a module of another name
            *(
                (meter, f"fairseq.meters.{meter.__name__}")
                for meter in (meters.AverageMeter, meters.TimeMeter, meters.StopwatchMeter)
            ),
        ]
    )
