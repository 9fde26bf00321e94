"""The scripts' output is identical to that of the plain tools run one after the other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Script

from benchmarks.data_prep_speed import LANGUAGES, differing, make_corpus
from data_prep.lib import parallel

SENTENCES = {
    "en": ["A man -- in blue -- walks.", "Two dogs & a cat.", "It costs 3,50 a piece, doesn't it?"],
    "de": [
        "Ein Mann – in Blau – geht.",
        "Zwei Hunde & eine Katze.",
        "„Das“ kostet 3,50 je Stück?",
    ],
}


@pytest.mark.slow
def test_output_of_several_processes_is_the_plain_tools(tmp_path: Path, script: Script) -> None:
    text = tmp_path / "text"
    text.mkdir()
    for language in LANGUAGES:
        (text / f"train.{language}").write_text("\n".join(SENTENCES[language] * 10), "utf-8")
    corpus, plain, ours = tmp_path / "corpus", tmp_path / "plain", tmp_path / "ours"
    # enough lines that several processes are started
    pairs = parallel.LINES_PER_CHUNK * (parallel.CHUNKS_FOR_ONE + 2)
    make_corpus(text, corpus, pairs=pairs)
    subprocess.run(
        [sys.executable, "-m", "benchmarks.plain_data_prep", corpus, plain, "--merges", "300"],
        cwd=ROOT,
        check=True,
    )
    done = script(
        *("wmt14.sh", "--from-dir", corpus, "--out", ours, "--pairs", "all"),
        *("--merges", 300, "--workers", 2, "--python", sys.executable),
    )
    assert done.returncode == 0, done.stderr
    assert (ours / "bin" / "train.en-de.en.bin").stat().st_size > pairs
    assert differing(ours, plain) == []

    with open(ours / "tok" / "train.de", "a") as file:
        file.write("Noch ein Satz .\n")
    assert differing(ours, plain) == ["tok/train.de"]
