"""Bad models: checkpoints and folders that are damaged, unsafe, or do not fit their options."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tests.bad_inputs.table import BadInput
from tests.fairseq_plugin import checkpoints
from tests.hf_plugin.made import write_model, write_task
from tests.hf_plugin.models import SOME

Change = Callable[[Any], None]


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
        (
            "a flipped bit",
            SHOW,
            "corrupt: the checksum of .* in it does not match$",
            _with_flipped_bit,
        ),
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


def _folder(change: Callable[[Path], None]) -> Callable[[Path], None]:
    """Write a tiny BERT after ``change`` to its folder, and a plan for it."""

    def prepare(folder: Path) -> None:
        write_model(folder / "model")
        write_task(folder / "glue", "rte")
        SOME.save(folder / "plan.json")
        change(folder / "model")

    return prepare


def _config(**changes: Any) -> Change:
    def apply(model: Path) -> None:
        path = model / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return apply


def _stored(name: str, change: Callable[[torch.Tensor], torch.Tensor | None]) -> Change:
    """Create a function that changes or, with None, removes one tensor in the file of weights."""

    def apply(model: Path) -> None:
        path = model / "model.safetensors"
        tensors = load_file(path)
        changed = change(tensors.pop(name))
        if changed is not None:
            tensors[name] = changed
        save_file(tensors, path, metadata={"format": "pt"})

    return apply


def _as_damaged_pickle(model: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    (model / "model.safetensors").unlink()
    path = model / "pytorch_model.bin"
    torch.save(tensors, path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _link_to_a_secret(model: Path) -> None:
    (model.parent / "secret").write_text("secret")
    (model / "notes.txt").symlink_to("../secret")


def _with_code(model: Path) -> None:
    classes = {"AutoConfig": "code.Config", "AutoModel": "code.Model"}
    _config(model_type="unheard-of", auto_map=classes)(model)
    written = model.parent / "code-was-run"
    (model / "code.py").write_text(f"open({str(written)!r}, 'w')\nclass Config: pass\n")


SHOW_FOLDER = ("headprune", "show", "{folder}/model")
PRUNE_FOLDER = (
    *("headprune", "prune", "{folder}/model", "--plan", "{folder}/plan.json"),
    *("-o", "{folder}/out"),
)
TO_ONNX = ("headprune", "export", "{folder}/model", "--to", "onnx", "-o", "{folder}/out")
TO_TRANSFORMERS = (*TO_ONNX[:4], "transformers", *TO_ONNX[5:])
GLUE = (
    *("headprune", "glue", "--task", "rte", "--model", "{folder}/model", "--data-dir"),
    *("{folder}/glue", "--max-length", "24", "-o", "{folder}/out"),
)
SCORES_FOLDER = (
    *("headprune", "scores", "{folder}/model", "--task", "rte", "--data-dir", "{folder}/glue"),
    *("--score", "magnitude", "-o", "{folder}/out"),
)
KEYS = "bert.encoder.layer.1.attention.self.key.weight"

FOLDERS = [
    BadInput(
        label=f"folder: {label}",
        command=command,
        message=rf"^error: .*{message}",
        prepare=_folder(change),
        status=1,
        standard_input=standard_input,
    )
    for label, command, message, change, standard_input in [
        *(
            (
                f"{size} is {value!r:.12}: {command[1]}",
                command,
                rf"config\.json: {size} is {value!r:.9}.*, it has to be a whole number from",
                _config(**{size: value}),
                "",
            )
            for size, value, command in [
                ("num_hidden_layers", 10**9, SHOW_FOLDER),
                ("num_attention_heads", 0, PRUNE_FOLDER),
                ("hidden_size", -24, TO_ONNX),
                ("vocab_size", 10**20, GLUE),
                ("num_labels", 10**9, SCORES_FOLDER),
                ("intermediate_size", 2.5, SHOW_FOLDER),
            ]
        ),
        (
            "a plan for another shape",
            *(SHOW_FOLDER, "model: kept_heads of the configuration: ES: kept heads for 1 layers"),
            *(_config(model_type="headpruned-bert", kept_heads={"ES": [[0]]}), ""),
        ),
        (
            "a missing projection",
            *(SHOW_FOLDER, f"model: its files do not hold {KEYS.removeprefix('bert.')} as its"),
            *(_stored(KEYS, lambda _: None), ""),
        ),
        (
            "a tensor of another shape",
            *(
                PRUNE_FOLDER,
                rf"{KEYS} in model\.safetensors has the shape 23 x 24, its config ",
            ),
            *(_stored(KEYS, lambda tensor: tensor[:-1].contiguous()), ""),
        ),
        *(
            (
                f"NaN weights: {command[1]}",
                *(command, f"{KEYS} .*has values that are not finite"),
                *(_stored(KEYS, _with_nan), ""),
            )
            for command in (SHOW_FOLDER, PRUNE_FOLDER, TO_ONNX, GLUE, SCORES_FOLDER)
        ),
        (
            "a flipped bit in pytorch_model.bin",
            *(
                SHOW_FOLDER,
                r"pytorch_model\.bin: corrupt: the checksum of .* in it does not match$",
            ),
            *(_as_damaged_pickle, ""),
        ),
        *(
            (
                f"a link out of it: {' '.join(command[1:5:3])}",
                *(command, r"notes\.txt: a link to a place outside the folder, .*secret, which "),
                *(_link_to_a_secret, ""),
            )
            for command in (PRUNE_FOLDER, TO_ONNX, TO_TRANSFORMERS)
        ),
        *(
            (
                f"code in it, and the answer yes: {command[1]}",
                *(command, "model contains custom code which must be executed"),
                *(_with_code, "y\ny\n"),
            )
            for command in (SHOW_FOLDER, GLUE)
        ),
    ]
]

ROWS = [*CHECKPOINTS, *FOLDERS]
