"""Forward passes of Hugging Face models, run by torch or, where exported, by onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from headprune.cost import forward_flops
from headprune.errors import DataError, UsageError, needing
from headprune.speed.forward_pass import Conditions, ForwardPass, bytes_of
from hf_plugin.folders import Folder, outline_of
from hf_plugin.loading import read_config
from hf_plugin.places import reporting
from hf_plugin.random_batches import random_batch

_SEED = 1


def torch_forward_pass(path: Path, conditions: Conditions) -> ForwardPass:
    """Load a folder that ``save_pretrained`` wrote.

    Raises:
        DataError: no weights, or not those of the config.
        UsageError: a family that cannot be pruned.
    """
    folder = Folder.load(path)
    device = torch.device(conditions.device)
    model: Any = folder.load_model().eval().to(device)
    drawn = random_batch(model, conditions.batch, conditions.length, seed=_SEED)
    batch = {name: tensor.to(device) for name, tensor in drawn.items()}

    @torch.inference_mode()
    def run() -> object:
        return model(**batch)

    return _of(folder, conditions, run=run, library="torch")


def onnx_forward_pass(path: Path, conditions: Conditions) -> ForwardPass:
    """Load a folder that `headprune export --to onnx` wrote.

    Raises:
        DataError: no model that onnxruntime reads, or no config beside it.
        UsageError: onnxruntime is not installed, or has no such device.
    """
    with needing("timing ONNX models needs onnxruntime", install="pip install onnxruntime"):
        import onnxruntime
    provider = f"{conditions.device.upper()}ExecutionProvider"
    if provider not in onnxruntime.get_available_providers():
        raise UsageError(f"--device {conditions.device}: onnxruntime has no {provider}")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = conditions.threads
    options.inter_op_num_threads = 1
    with reporting(f"{path}: cannot read the model"):
        config, _ = read_config(path)
        folder = Folder(path, outline_of(config, where=str(path)))
        session: Any = onnxruntime.InferenceSession(
            str(path / "model.onnx"), options, providers=[provider]
        )
    drawn = random_batch(folder.model, conditions.batch, conditions.length, seed=_SEED)
    names = [each.name for each in session.get_inputs()]
    if missing := [name for name in names if name not in drawn]:
        raise DataError(f"{path}: model.onnx takes {missing[0]}, which its config does not explain")
    batch = {name: drawn[name].numpy() for name in names}
    return _of(folder, conditions, run=lambda: session.run(None, batch), library="onnxruntime")


def _of(folder: Folder, conditions: Conditions, *, run: Any, library: str) -> ForwardPass:
    length = conditions.length
    flops = forward_flops(folder.plan, folder.sizes, source=length, target=length)
    return ForwardPass(
        run=run,
        library=library,
        parameters=folder.parameters,
        flops=conditions.batch * flops,
        file_bytes=bytes_of(folder.path),
    )
