"""Forward passes of fairseq checkpoints."""

from __future__ import annotations

from pathlib import Path

import torch

from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.loading import fairseq_silent, load_model, trained_on
from headprune.cost import forward_flops
from headprune.speed.forward_pass import Conditions, ForwardPass, bytes_of


def fairseq_forward_pass(path: Path, conditions: Conditions) -> ForwardPass:
    """Load a checkpoint, with the dictionaries of the data that it was trained on.

    Raises:
        UsageError: these data are not there.
        DataError: the checkpoint or the dictionaries cannot be read.
    """
    checkpoint = Checkpoint.load(path)
    with fairseq_silent():
        model, task = load_model(checkpoint, trained_on(checkpoint))
    model.eval()
    model.to(conditions.device)
    generator = torch.Generator().manual_seed(1)
    size = (conditions.batch, conditions.length - 1)
    sides = []
    for dictionary in (task.source_dictionary, task.target_dictionary):
        words = torch.randint(dictionary.nspecial, len(dictionary), size, generator=generator)
        sides.append((words, torch.full((conditions.batch, 1), dictionary.eos())))
    (source, source_end), (target, target_end) = sides
    inputs = {
        "src_tokens": torch.cat([source, source_end], dim=1),  # B x T
        "src_lengths": torch.full((conditions.batch,), conditions.length),
        "prev_output_tokens": torch.cat([target_end, target], dim=1),  # B x T
    }
    batch = {name: tensor.to(conditions.device) for name, tensor in inputs.items()}

    @torch.inference_mode()
    def run() -> object:
        return model(**batch)

    length = conditions.length
    flops = forward_flops(checkpoint.plan, checkpoint.sizes, source=length, target=length)
    return ForwardPass(
        run=run,
        library="fairseq",
        parameters=checkpoint.parameters,
        flops=conditions.batch * flops,
        file_bytes=bytes_of(path),
    )
