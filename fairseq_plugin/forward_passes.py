"""Jobs of fairseq checkpoints that are timed: forward pass, encoder, decoder, beam search."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from fairseq.dataclass.configs import GenerationConfig
from torch import Tensor

from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.loading import fairseq_silent, load_model, trained_on, write_dictionaries
from headprune.cost import forward_flops
from headprune.errors import UsageError
from headprune.speed.forward_pass import (
    DECODER,
    ENCODER,
    FORWARD,
    SEARCH,
    Conditions,
    ForwardPass,
    drawn_hypotheses,
)


def fairseq_forward_pass(checkpoint: Checkpoint, conditions: Conditions) -> ForwardPass:
    """Load a checkpoint, with the dictionaries of the data that it was trained on.

    Where these are not there, made-up words stand in for them: the time does not depend on which
    words they are.

    Raises:
        DataError: the checkpoint or the dictionaries cannot be read.
    """
    with fairseq_silent(), TemporaryDirectory() as folder:
        try:
            data = trained_on(checkpoint)
        except UsageError:
            data = Path(folder)
            write_dictionaries(checkpoint, data)
        model, task = load_model(checkpoint, data)
    model.eval()
    model.to(conditions.device)
    batch = _batch(task, conditions)
    length = conditions.length
    flops = forward_flops(
        checkpoint.computed_plan,
        checkpoint.sizes,
        source=length,
        target=length,
        beam=conditions.hypotheses,
    )
    is_whole = conditions.job in (FORWARD, SEARCH)
    return ForwardPass(
        run=torch.no_grad()(_job(model, task, batch, conditions)),
        library="fairseq",
        parameters=checkpoint.parameters,
        flops=conditions.batch * flops if is_whole else None,
        file_bytes=checkpoint.weight_bytes,
        dtype="float32",
    )


def _batch(task: Any, conditions: Conditions) -> dict[str, Tensor]:
    """Random words, each sentence with its </s>: the inputs of a forward pass."""
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
    return {name: tensor.to(conditions.device) for name, tensor in inputs.items()}


def _job(
    model: Any, task: Any, batch: dict[str, Tensor], conditions: Conditions
) -> Callable[[], object]:
    source = {name: batch[name] for name in ("src_tokens", "src_lengths")}
    beam, length, drawn = conditions.hypotheses, conditions.length, drawn_hypotheses(conditions)
    if conditions.job == ENCODER:
        return lambda: model.encoder(**source)
    if conditions.job == DECODER:
        with torch.no_grad():
            encoded = model.encoder(**source)
        order = torch.arange(conditions.batch, device=conditions.device).repeat_interleave(beam)
        targets = batch["prev_output_tokens"][order]  # beam*B x T
        first = order.view(conditions.batch, beam) * beam  # the number of a sentence's first row

        def decode() -> object:
            copies = model.encoder.reorder_encoder_out(encoded, order)
            caches: dict[str, Any] = {}
            for step in range(1, length + 1):
                output = model.decoder(
                    targets[:, :step], encoder_out=copies, incremental_state=caches
                )
                rows = (first + drawn[step - 1, :, :beam]).view(-1)
                model.decoder.reorder_incremental_state_scripting(caches, rows)
                copies = model.encoder.reorder_encoder_out(copies, rows)
            return output

        return decode
    if conditions.job == SEARCH:
        # Every translation has the same length, </s> included: bad models write longer ones.
        settings = GenerationConfig(
            beam=beam, max_len_a=0, max_len_b=length - 1, min_len=length - 1
        )
        search = task.build_generator([model], settings)
        search.search.step = _continuing(search.search.step, drawn)
        return lambda: search.generate([model], {"net_input": source})
    return lambda: model(**batch)


def _continuing(step: Callable[..., Any], drawn: Tensor) -> Callable[..., Any]:
    """A step of a beam search that continues drawn hypotheses with the words that it finds."""

    def drawing(number: int, *inputs: Any, **options: Any) -> tuple[Tensor, Tensor, Tensor]:
        scores, words, hypotheses = step(number, *inputs, **options)  # B x candidates, each
        return scores, words, drawn[number].view_as(hypotheses)

    return drawing
