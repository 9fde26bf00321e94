"""Bad models: checkpoints and folders that are damaged, unsafe, or do not fit their options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.bad_inputs.table import BadInput
from tests.fairseq_plugin import checkpoints

Change = Callable[[dict[str, Any]], None]


def _checkpoint(change: Change, *, pruned: bool = False) -> Callable[[Path], None]:
    """Write a tiny checkpoint after ``change`` to its content, and a plan for it."""

    def prepare(folder: Path) -> None:
        state = checkpoints.content(plan=checkpoints.PLAN if pruned else None)
        change(state)
        torch.save(state, folder / "model.pt")
        checkpoints.PLAN.save(folder / "plan.json")

    return prepare


def _option(name: str, value: Any) -> Change:
    return lambda state: setattr(state["args"], name, value)


def _tensor(name: str, change: Callable[[torch.Tensor], Any]) -> Change:
    def apply(state: dict[str, Any]) -> None:
        state["model"][name] = change(state["model"][name])

    return apply


def _without(name: str) -> Change:
    def apply(state: dict[str, Any]) -> None:
        del state["model"][name]

    return apply


def _with_nan(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.clone()
    tensor.view(-1)[0] = float("nan")
    return tensor


def _with_flipped_bit(folder: Path) -> None:
    _checkpoint(lambda state: None)(folder)
    data = bytearray((folder / "model.pt").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "model.pt").write_bytes(data)


def _another_plan() -> str:
    from headprune import HeadPlan

    return HeadPlan.full({"ES": (4,) * 3, "ED": (4,) * 3, "DS": (4,) * 3}).to_json()


SHOW = ("headprune", "show", "{folder}/model.pt")
PRUNE = (
    *("headprune", "prune", "{folder}/model.pt", "--plan", "{folder}/plan.json"),
    *("-o", "{folder}/out.pt"),
)
EXPORT = ("headprune", "export", "{folder}/model.pt", "--to", "fairseq", "-o", "{folder}/out.pt")
SCORES = ("headprune", "scores", "{folder}/model.pt", "-o", "{folder}/scores")
QUERIES = "encoder.layers.0.self_attn.q_proj.weight"

CHECKPOINTS = [
    BadInput(
        label=f"checkpoint: {label}",
        command=command,
        message=rf"^error: .*model\.pt: {message}",
        prepare=prepare,
        status=1,
    )
    for label, command, message, prepare in [
        ("a flipped bit", SHOW, "corrupt: the checksum of .* in it is another$", _with_flipped_bit),
        (
            "options of the wrong type",
            *(SHOW, "its option encoder_layers is '2', it has to be a whole number from 1 to "),
            _checkpoint(_option("encoder_layers", "2")),
        ),
        (
            "no layer",
            *(EXPORT, "its option decoder_layers is 0, it has to be a whole number from 1 to "),
            _checkpoint(_option("decoder_layers", 0)),
        ),
        (
            "a negative number of heads",
            *(PRUNE, "its option decoder_attention_heads is -4, it has to be a whole number "),
            _checkpoint(_option("decoder_attention_heads", -4)),
        ),
        (
            "a billion layers",
            *(SHOW, "its option encoder_layers is 1000000000, it has to be a whole number from 1 "),
            _checkpoint(_option("encoder_layers", 10**9)),
        ),
        (
            "more layers than weights",
            *(PRUNE, "its option encoder_layers is 900000, its weights are of 2 layers$"),
            _checkpoint(_option("encoder_layers", 900_000)),
        ),
        (
            "heads that do not divide the width",
            *(PRUNE, "its option encoder_embed_dim is 32, which does not divide into 5 heads$"),
            _checkpoint(_option("encoder_attention_heads", 5)),
        ),
        (
            "a missing projection",
            *(PRUNE, f"a checkpoint of transformer without {QUERIES}; heads can be pruned from "),
            _checkpoint(_without(QUERIES)),
        ),
        (
            "a tensor of another shape",
            *(PRUNE, f"{QUERIES} is 31 x 32, by the options it should be 32 x 32$"),
            _checkpoint(_tensor(QUERIES, lambda tensor: tensor[:-1])),
        ),
        (
            "a scalar",
            *(EXPORT, f"{QUERIES} is a single number, by the options it should be 32 x 32$"),
            _checkpoint(_tensor(QUERIES, lambda _: torch.tensor(1.0))),
        ),
        (
            "no tensor",
            *(SHOW, f"'{QUERIES}' in it is no tensor$"),
            _checkpoint(_tensor(QUERIES, lambda _: 1)),
        ),
        *(
            (
                f"NaN weights: {command[1]}",
                *(command, f"{QUERIES} has values that are not finite"),
                _checkpoint(_tensor(QUERIES, _with_nan)),
            )
            for command in (SHOW, PRUNE, EXPORT, SCORES)
        ),
        (
            "a plan for another shape in it",
            *(SHOW, "its option head_plan does not fit its weights: ES: the plan is for 3 layers"),
            _checkpoint(_option("head_plan", _another_plan()), pruned=True),
        ),
        (
            "another plan than the weights",
            *(EXPORT, "encoder.layers.0.self_attn.q_proj.weight is 16 x 32, by the options it "),
            _checkpoint(_option("head_plan", None), pruned=True),
        ),
        (
            "an unknown form",
            *(SHOW, "its option head_form is 'burn', known are mask, remove$"),
            _checkpoint(_option("head_form", "burn"), pruned=True),
        ),
    ]
]

ROWS = [*CHECKPOINTS]
