"""fairseq's flags are refused before anything runs with them, in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fairseq")

from fairseq_plugin.flags import check_flags
from headprune import UsageError

ARCH = ["--arch", "transformer_headpruned_tiny"]


def test_good_flags_pass() -> None:
    schedule = ["--lr-scheduler", "polynomial_decay", "--total-num-update", "50"]
    check_flags("train", [*ARCH, "--optimizer", "adam", "--lr", "1e-3", *schedule])
    check_flags("generate", ["--beam", "5", "--lenpen", "0.6"])


@pytest.mark.parametrize(
    ("program", "flags", "message"),
    [
        ("train", ["--lrr", "1"], "unrecognized arguments: --lrr 1; did you mean --lr?"),
        ("train", ["--lr", "abc"], "argument --lr: invalid"),
        ("train", ["--max-epoch", "x"], "argument --max-epoch: invalid int value: 'x'"),
        ("train", ["--max-tokens"], "argument --max-tokens: expected one argument"),
        ("train", ["--optimizer", "adm"], "; did you mean adam?"),
        ("train", ["--arch", "transformer_headpruned_tinny"], "mean transformer_headpruned_tiny?"),
        ("train", ["--adam-eps", "1"], "unrecognized arguments: --adam-eps 1"),
        ("train", ["--help"], "--help prints a text and runs nothing"),
        ("generate", ["--bema", "5"], "unrecognized arguments: --bema 5; did you mean --beam?"),
    ],
)
def test_a_mistake_is_one_short_line(
    program: str, flags: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        check_flags(program, [*(ARCH if program == "train" else []), *flags])
    assert str(caught.value).startswith(f"fairseq-{program}: ")
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300
    assert capfd.readouterr() == ("", "")


def test_a_process_of_its_own_answers_for_several_programs() -> None:
    asked = [
        {"check": "train", "flags": [*ARCH, "--lr", "1e-3", "--warmup-updates", "10%"]},
        {"check": "generate", "flags": ["--bema", "5"]},
        {"check": "shape", "flags": [*ARCH, "--encoder-layers", "3"]},
    ]
    answer = subprocess.run(
        [sys.executable, "-m", "fairseq_plugin.flags"],
        cwd=Path(__file__).parents[2],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
    )
    first, second, third = json.loads(answer.stdout)
    assert first == {"mistake": None} and "--bema" in second["mistake"]
    assert third["shape"] == {
        **{"ES": [4, 4, 4], "ED": [4, 4], "DS": [4, 4]},
        **{"EF": [64, 64, 64], "DF": [64, 64], "EL": [1, 1, 1], "DL": [1, 1]},
    }
