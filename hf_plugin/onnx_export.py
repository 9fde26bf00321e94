"""Export BERT and similar models to ONNX, and check the outputs with onnxruntime."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch import Tensor
from transformers import PreTrainedModel

from headprune.errors import DataError, UsageError
from headprune.folders import new_folder
from hf_plugin.checked_export import CheckedExport
from hf_plugin.families import is_decoder_alone
from hf_plugin.folder_files import copy_files, named_as
from hf_plugin.folders import Folder
from hf_plugin.pruned_files import CODE
from hf_plugin.random_batches import compared_batches

TOLERANCE = 1e-4
"""The allowed difference of an output, relative to the largest output where that is above 1."""

_ONE_FILE = 1_500_000_000
"""The largest size of weights, in bytes, that model.onnx holds itself; its format ends at 2 GB."""

_BESIDE = ("*.json", "*.txt", "*.model", "*.jinja", *CODE)
"""Files of a model's folder that come along: config, the code that it names, and tokenizer."""


@dataclass(frozen=True, kw_only=True)
class OnnxExport(CheckedExport):
    """The result of an export.

    Attributes:
        inputs, outputs: the names of the model's inputs and outputs.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def export_to_onnx(path: Path, output: Path) -> OnnxExport:
    """Write a folder with model.onnx, for batches and sentences of any size, and the tokenizer.

    Weights of more than 1.5 GB are in model.onnx.data beside it.

    The folder appears only if onnxruntime computes the outputs of the model.

    Args:
        path: the model's folder, head-pruned or not.
        output: the folder to write; it must not exist, or be empty.

    Raises:
        UsageError: a model with a decoder, or one for multiple choice.
        DataError: ``output`` is taken, the model cannot be read, the outputs differ, or a link in
            the folder points to a place outside it.
    """
    folder = Folder.load(path)
    if folder.model.config.is_encoder_decoder or is_decoder_alone(folder.model):
        raise UsageError(f"{path}: has a decoder; --to onnx is for encoders such as BERT")
    if "MultipleChoice" in type(folder.model).__name__:
        raise UsageError(f"{path}: --to onnx is not for multiple choice")
    with new_folder(output) as temporary:
        model = folder.load_model().float().eval()
        # The outputs are tensors by name, whatever the config asks for.
        model.config.return_dict = True
        model.config.output_hidden_states = model.config.output_attentions = False
        batches = compared_batches(model)
        outputs = tuple(model(**batches[0]).keys())
        file = temporary / "model.onnx"
        _write(model, file, batch=batches[0], outputs=outputs)
        difference = _largest_difference(model, file, batches)
        if not difference <= TOLERANCE:
            raise DataError(
                f"{path}: not exported: onnxruntime's outputs differ from the model's by "
                f"{difference:.1e}, more than {TOLERANCE:.0e}"
            )
        wanted, unwanted = named_as(*_BESIDE), named_as("*.index.json")
        copy_files(path, temporary, wanted=lambda name: wanted(name) and not unwanted(name))
    inputs = tuple(batches[0])
    return OnnxExport(
        plan=folder.plan,
        contents=f"model.onnx takes {', '.join(inputs)} and gives {', '.join(outputs)}",
        difference=difference,
        inputs=inputs,
        outputs=outputs,
    )


def _write(
    model: PreTrainedModel, path: Path, *, batch: dict[str, Tensor], outputs: tuple[str, ...]
) -> None:
    dynamic = {0: torch.export.Dim.DYNAMIC}
    if model.main_input_name == "input_ids":  # images have one size
        dynamic[1] = torch.export.Dim.DYNAMIC
    logging.disable()  # the exporter's own difficulties on its way; the result is checked
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                model,
                kwargs=batch,
                dynamo=True,
                verbose=False,
                dynamic_shapes=dict.fromkeys(batch, dynamic),
                input_names=list(batch),
                output_names=list(outputs),
            )
        assert program is not None
        for node in program.model.graph.all_nodes():
            node.metadata_props.clear()  # stack traces, with the paths of this machine
        size = sum(weight.numel() * weight.element_size() for weight in model.parameters())
        program.save(str(path), external_data=size > _ONE_FILE)
    except torch.onnx.OnnxExporterError as error:
        reason = str(error.__cause__ or error).strip().partition("\n")[0]
        raise DataError(f"torch cannot export the model to ONNX: {reason}") from None
    finally:
        logging.disable(logging.NOTSET)


@torch.no_grad()
def _largest_difference(
    model: PreTrainedModel, path: Path, batches: list[dict[str, Tensor]]
) -> float:
    session: Any = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    largest = 0.0
    for batch in batches:
        outputs = session.run(None, {name: tensor.numpy() for name, tensor in batch.items()})
        for tensor, exported in zip(model(**batch).values(), outputs, strict=True):
            expected = tensor.numpy()
            difference = np.abs(exported - expected).max() / max(1.0, np.abs(expected).max())
            largest = max(largest, float(np.nan_to_num(difference, nan=np.inf)))
    return largest
