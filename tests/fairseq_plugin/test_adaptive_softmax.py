"""Models with an adaptive softmax, whose outputs are hidden states."""

from __future__ import annotations

import torch

from fairseq_plugin.scores.model import FairseqModel
from tests.fairseq_plugin.models import batch, build


def test_losses_are_those_of_the_adaptive_softmax() -> None:
    # As wide as the vocabulary or wider, so that hidden states could pass for its logits.
    model = build(adaptive_softmax_cutoff="8,16").eval()
    net_input = batch()
    target = net_input["prev_output_tokens"].roll(-1, dims=1)  # B x T
    sample = {"net_input": net_input, "target": target}
    with torch.no_grad():
        losses = FairseqModel(model).outcome(sample).losses
        output = model(**net_input)
        log_probs = model.get_normalized_probs(output, log_probs=True, sample=sample)
    counted = target.ne(model.decoder.dictionary.pad())
    of_targets = -log_probs.gather(2, target.unsqueeze(2)).squeeze(2) * counted
    torch.testing.assert_close(losses, of_targets.sum(1) / counted.sum(1), check_dtype=False)


def test_gradients_pass_through_the_adaptive_softmax() -> None:
    model = build(adaptive_softmax_cutoff="8,16").eval()
    net_input = batch()
    target = net_input["prev_output_tokens"].roll(-1, dims=1)  # B x T
    FairseqModel(model).outcome({"net_input": net_input, "target": target}).losses.sum().backward()
    found = {
        name: weights.grad for name, weights in model.decoder.adaptive_softmax.named_parameters()
    }
    assert all(gradient is not None and gradient.any() for gradient in found.values())
