"""Gates: factors on the outputs of units, fixed (masks, ablation) or learned with an L0 penalty."""

from headprune.gates.hooks import (
    Factors,
    Gate,
    LayerGate,
    gated,
    gated_by_component,
    gated_layers,
    mask_of,
    masked_units,
)

__all__ = [
    "Factors",
    "Gate",
    "LayerGate",
    "gated",
    "gated_by_component",
    "gated_layers",
    "mask_of",
    "masked_units",
]
