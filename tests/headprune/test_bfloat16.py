"""The warning that bfloat16 is slow on this processor."""

from __future__ import annotations

import pytest
import torch

from headprune.bfloat16 import warn_if_slow


@pytest.fixture(autouse=True)
def no_warning_yet() -> None:
    warn_if_slow.cache_clear()


@pytest.mark.parametrize(
    ("capability", "warns"),
    [("NO AVX", True), ("AVX2", True), ("AVX512", False), ("AMX", False), ("DEFAULT", False)],
)
def test_only_processors_that_are_known_to_be_slow_are_warned_about(
    capability: str,
    warns: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    warn_if_slow("--bf16")
    error = capsys.readouterr().err
    assert error.startswith("warning: --bf16: this processor has no instructions") == warns
    assert (error == "") == (not warns)


def test_the_warning_is_given_once_for_each_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    for _ in range(2):
        warn_if_slow("--bf16")
        warn_if_slow("--autocast bf16", remedy="give --model-overrides")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and lines[1].endswith("than float32; give --model-overrides")
