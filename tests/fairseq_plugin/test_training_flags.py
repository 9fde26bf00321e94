"""The architecture and flags that describe the model in a checkpoint."""

from __future__ import annotations

from typing import Any

import pytest

from fairseq_plugin.flags import check_flags
from fairseq_plugin.training_flags import training_flags

POST_NORM = {"encoder_normalize_before": False, "decoder_normalize_before": False}


@pytest.mark.parametrize(
    ("arch", "changes", "expected"),
    [
        ("transformer_headpruned", {}, "transformer_headpruned"),
        ("transformer_headpruned_t2t", {}, "transformer_headpruned_t2t"),
        # As near to the architecture of tensor2tensor, whose layer norms come first.
        (
            "transformer_headpruned",
            {"attention_dropout": 0.1, "activation_dropout": 0.1, **POST_NORM},
            "transformer_headpruned",
        ),
    ],
)
def test_no_option_of_the_architecture_has_to_be_turned_off(
    arch: str, changes: dict[str, Any], expected: str
) -> None:
    options = {**vars(check_flags("train", ["--arch", arch])), **changes}
    found, flags = training_flags(options)
    assert found == expected
    given = [f"--{name}" if value is True else f"--{name}={value}" for name, value in flags.items()]
    described = vars(check_flags("train", ["--arch", found, *given]))
    assert all(described[name] == options[name] for name in (*POST_NORM, *changes))


def test_sizes_that_some_models_have_are_described() -> None:
    given = {"decoder_output_dim": 64, "encoder_learned_pos": True, "max_source_positions": 200}
    given |= {"adaptive_softmax_cutoff": "10,20", "adaptive_softmax_factor": 2.0}
    options = {**vars(check_flags("train", ["--arch", "transformer_headpruned"])), **given}
    _, flags = training_flags(options)
    assert flags == {name.replace("_", "-"): value for name, value in given.items()}
    _, of_numbers = training_flags({**options, "adaptive_softmax_cutoff": [10, 20]})
    assert of_numbers == flags
