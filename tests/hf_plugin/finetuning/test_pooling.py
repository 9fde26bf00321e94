"""Classification from the mean of all tokens."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForSequenceClassification

import hf_plugin
from headprune.errors import UsageError
from hf_plugin.finetuning.pooling import pool_by_mean
from hf_plugin.finetuning.run import run
from hf_plugin.finetuning.settings import Labels
from tests.hf_plugin.made import settings, write_model, write_task
from tests.hf_plugin.models import build
from tests.hf_plugin.scores.test_scores import data


def test_the_classifier_reads_the_mean_of_the_real_tokens() -> None:
    model = build("bert", AutoModelForSequenceClassification).eval()
    batch = {name: tensor for name, tensor in data("bert").items() if name != "labels"}
    assert (batch["attention_mask"] == 0).any()
    hidden = model.bert(**batch).last_hidden_state  # B x T x D
    mask = batch["attention_mask"].unsqueeze(-1).float()
    mean = (hidden * mask).sum(1) / mask.sum(1)
    expected = model.classifier(torch.tanh(model.bert.pooler.dense(mean)))
    first = model(**batch).logits
    pool_by_mean(model)
    torch.testing.assert_close(model(**batch).logits, expected)
    assert not torch.allclose(first, expected)
    # Still so once heads are pruned, which changes what the hooks see.
    hf_plugin.prune_heads(model, {0: [0]})
    assert not torch.allclose(model(**batch).logits, expected)


def test_a_family_without_such_a_pooler_is_refused() -> None:
    model = build("distilbert", AutoModelForSequenceClassification)
    with pytest.raises(UsageError, match="pooling mean: .* has no pooler as BERT's"):
        pool_by_mean(model)


@pytest.mark.slow
def test_a_run_says_so_and_saves_no_model_that_would_be_read_wrongly(tmp_path) -> None:
    glue = write_task(tmp_path / "glue", "sst2")
    chosen = settings("sst2", write_model(tmp_path / "start"), glue, pooling="mean", epochs=1.0)
    result = run(chosen, Labels(), tmp_path / "run")
    assert "finetune:1ep,mean-pooled" in result.signature
    assert not (tmp_path / "run" / "model").exists()
    assert run(chosen, Labels(), tmp_path / "run").metrics == result.metrics


def test_pooling_needs_training() -> None:
    with pytest.raises(UsageError, match="pooling mean: the classifier must be trained for it"):
        settings("sst2", "model", None, pooling="mean", epochs=0.0).check()
