"""Warn if this machine's processor computes bfloat16 slowly."""

from __future__ import annotations

import sys
from functools import cache

import torch

WITHOUT_BFLOAT16 = ("NO AVX", "AVX2")
"""PyTorch's names for the capability of x86 processors without 512-bit instructions."""


@cache
def warn_if_slow(option: str, *, remedy: str = "leave the option out") -> None:
    """Print a warning, once for each option, if bfloat16 is slower than float32 on this processor.

    x86 processors without AVX-512 convert every factor of a matrix product: a fine-tuning of MiniLM
    took seven times as long there. Other processors are not known to be slow and get no warning.

    Args:
        option: the option that asks for bfloat16, as in the command.
        remedy: what to do about it.
    """
    if torch.backends.cpu.get_cpu_capability() in WITHOUT_BFLOAT16:
        print(
            f"warning: {option}: this processor has no instructions for bfloat16, which is several "
            f"times slower on it than float32; {remedy}",
            file=sys.stderr,
        )
