"""Tests of the tokenisation, which fairseq can undo."""

from __future__ import annotations

from pathlib import Path

import pytest
import sacrebleu
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from data_prep.lib import parallel, tokenise
from data_prep.lib.corpus import read

# Without what Moses itself does not bring back: "10:30" comes back as "10: 30".
SENTENCES = {
    "en": [
        "It's a well-known fact, isn't it?",
        'He said: "We (all of us) paid $3.50 & left..."',
        "The dogs' bowl costs 1,000.5 euros [or less].",
    ],
    "de": [
        "Der Ein-Mann-Betrieb kostet 3,50 Euro – oder weniger.",
        "Sie sagte: „Ja, z. B. heute!“ & ging.",
        "Ein Boston Terrier läuft über saftig-grünes Gras.",
    ],
    "ru": ["Он сказал: «Да, в 10.30!» — и ушёл.", "Кое-кто купил 21 книгу."],
}


def plain_pipeline(lines: list[str], language: str) -> list[str]:
    normaliser, tokeniser = MosesPunctNormalizer(language), MosesTokenizer(language)
    return [
        tokeniser.tokenize(normaliser.normalize(line), aggressive_dash_splits=True, return_str=True)
        for line in lines
    ]


@pytest.mark.parametrize("language", sorted(SENTENCES))
@pytest.mark.parametrize("workers", [1, 2])
def test_equals_the_plain_pipeline(
    language: str, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # so few lines a chunk that two workers are indeed started
    monkeypatch.setattr(parallel, "LINES_PER_CHUNK", 50)
    lines = [f"{line} {n}" for n in range(301) for line in SENTENCES[language]]
    source, target = tmp_path / "raw", tmp_path / "tok"
    source.write_text("".join(f"{line}\n" for line in lines))
    tokenise.main(["--lang", language, "--workers", str(workers), str(source), str(target)])
    expected = plain_pipeline(lines, language)
    assert target.read_text() == "".join(f"{line}\n" for line in expected)


@pytest.mark.slow
@pytest.mark.parametrize("language", sorted(SENTENCES))
def test_is_what_fairseq_does_and_undoes(language: str) -> None:
    from fairseq.data.encoders.moses_tokenizer import MosesTokenizer as Fairseq
    from fairseq.data.encoders.moses_tokenizer import MosesTokenizerConfig

    fairseq = Fairseq(MosesTokenizerConfig(source_lang=language, target_lang=language))
    normaliser = MosesPunctNormalizer(language)
    ours = tokenise.make_tokeniser(language)
    for sentence in SENTENCES[language]:
        normalised = normaliser.normalize(sentence)
        assert ours(sentence) == fairseq.encode(normalised)
        assert fairseq.decode(ours(sentence)).split() == normalised.split()


@pytest.mark.parametrize("language", ["en", "de"])
def test_real_text_survives(shared_data: Path, language: str) -> None:
    from sacremoses import MosesDetokenizer

    raw = list(read(shared_data / "multi30k" / f"test_2016_flickr.{language}.gz"))
    tokens = tokenise.tokenise_lines(raw, language=language, workers=1)
    detokeniser = MosesDetokenizer(language)
    back = [detokeniser.detokenize(line.split()) for line in tokens]
    assert sacrebleu.corpus_bleu(back, [raw]).score > 99.5
