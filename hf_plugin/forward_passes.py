"""Jobs of Hugging Face models that are timed, run by torch or, where exported, by onnxruntime."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headprune.cost import known_flops
from headprune.errors import DataError, UsageError, needing
from headprune.speed.forward_pass import (
    ENCODER,
    FORWARD,
    SEARCH,
    Conditions,
    ForwardPass,
    bytes_of,
    drawn_hypotheses,
    require_forward,
)
from hf_plugin.folders import Folder, outline_of
from hf_plugin.loading import read_config
from hf_plugin.places import reporting
from hf_plugin.random_batches import inputs_name, random_batch
from hf_plugin.timed_translations import translate_to_length

_SEED = 1


def torch_forward_pass(path: Path, conditions: Conditions) -> ForwardPass:
    """Load a folder that ``save_pretrained`` wrote.

    Raises:
        DataError: no weights, or not those of the config.
        UsageError: a family that cannot be pruned, or a model that does not do the job.
    """
    return folder_forward_pass(Folder.load(path), conditions)


def folder_forward_pass(folder: Folder, conditions: Conditions) -> ForwardPass:
    """Draw a batch for a folder's model, or for a pruned one.

    Raises:
        DataError, UsageError: as ``torch_forward_pass``.
    """
    device = torch.device(conditions.device)
    model: Any = folder.load_model().eval().to(device)
    drawn = random_batch(model, conditions.batch, conditions.length, seed=_SEED)
    batch = {name: tensor.to(device) for name, tensor in drawn.items()}
    run = torch.inference_mode()(_job(model, batch, conditions, path=folder.path))
    dtype = str(model.dtype).removeprefix("torch.")
    return _of(folder, conditions, drawn, run=run, library="torch", dtype=dtype)


def _job(
    model: Any, batch: dict[str, Tensor], conditions: Conditions, *, path: Path
) -> Callable[[], object]:
    job, beam, length = conditions.job, conditions.hypotheses, conditions.length
    if job == FORWARD:
        return lambda: model(**batch)
    if not model.config.is_encoder_decoder:
        raise UsageError(f"{path}: has no encoder with a decoder, so there is no job {job}")
    if "input_ids" not in batch:
        raise UsageError(f"{path}: the job {job} is timed for models of text; give --job forward")
    source = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    encoder = model.get_encoder()
    if job == ENCODER:
        return lambda: encoder(**source)
    if job == SEARCH:
        if not model.can_generate():
            raise UsageError(f"{path}: {type(model).__name__} writes no text; give --job forward")
        return lambda: translate_to_length(model, source, length=length, num_beams=beam)
    decoder, output = model.get_decoder(), model.get_output_embeddings()
    with torch.inference_mode():
        encoded = encoder(**source)[0].repeat_interleave(beam, dim=0)  # beam*B x T x C
    mask = source["attention_mask"].repeat_interleave(beam, dim=0)  # beam*B x T
    targets = source["input_ids"].repeat_interleave(beam, dim=0)  # beam*B x T
    first = beam * torch.arange(conditions.batch, device=mask.device)[:, None]
    drawn = drawn_hypotheses(conditions)
    # Its name since transformers 5.24, and before.
    is_new = "cache" in inspect.signature(decoder.forward).parameters
    name = "cache" if is_new else "past_key_values"

    def decode() -> object:
        caches = None
        for step in range(length):
            outputs = decoder(
                input_ids=targets[:, step : step + 1],
                encoder_hidden_states=encoded,
                encoder_attention_mask=mask,
                use_cache=True,
                **{name: caches},
            )
            caches = getattr(outputs, name)
            caches.reorder_cache((first + drawn[step, :, :beam]).view(-1))
            if output is not None:
                output(outputs.last_hidden_state)  # beam*B x 1 x V
        return outputs

    return decode


def onnx_forward_pass(path: Path, conditions: Conditions) -> ForwardPass:
    """Load a folder that `headprune export --to onnx` wrote.

    Raises:
        DataError: no model that onnxruntime reads, or no config beside it.
        UsageError: onnxruntime is not installed, or has no such device; or another job.
    """
    require_forward(conditions, path=path)
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
    return _of(
        folder, conditions, drawn, run=lambda: session.run(None, batch), library="onnxruntime"
    )


def _of(
    folder: Folder,
    conditions: Conditions,
    batch: Mapping[str, Tensor],
    *,
    run: Any,
    library: str,
    dtype: str | None = None,
) -> ForwardPass:
    length = conditions.length
    flops = known_flops(
        folder.computed_plan,
        folder.sizes,
        source=length,
        target=length,
        beam=conditions.hypotheses,
    )
    is_whole = conditions.job in (FORWARD, SEARCH)
    return ForwardPass(
        run=run,
        library=library,
        parameters=folder.parameters,
        flops=None if flops is None or not is_whole else _sequences(batch) * flops,
        file_bytes=bytes_of(folder.path),
        dtype=dtype,
        inputs=inputs_name(folder.model, length),
    )


def _sequences(batch: Mapping[str, Tensor]) -> int:
    """The number of sequences of a batch: several for each example of multiple choice."""
    ids = batch.get("input_ids")
    return len(next(iter(batch.values()))) if ids is None else ids.shape[:-1].numel()
