"""Tests of the tokenisation, which fairseq can undo."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sacrebleu
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from data_prep.lib import parallel, tokenise
from data_prep.lib.corpus import read
from data_prep.lib.text import TextProcessing

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


REGIONAL = "I don't know the dog's name."


def processing(folder: Path, **facts: object) -> TextProcessing:
    """The text processing of an English corpus, with one merge."""
    (folder / "codes").write_text("#version: 0.2\na b</w>\n")
    facts = {"tokenizer": "moses", "bpe": "subword_nmt", "bpe_codes": "codes", **facts}
    (folder / "prep.json").write_text(json.dumps(facts))
    result = TextProcessing.of_preparation(folder, source_lang="en_GB", target_lang="en_GB")
    assert result is not None
    return result


@pytest.mark.parametrize(("code", "text"), [("en_GB", REGIONAL), ("fr-CA", "L'eau de l'île.")])
def test_a_region_does_not_change_the_rules(code: str, text: str) -> None:
    expected = plain_pipeline([text], code[:2])
    assert list(tokenise.tokenise_lines([text], language=code, workers=1)) == expected


def test_text_of_a_language_with_a_region_comes_back(tmp_path: Path) -> None:
    corpus = processing(tmp_path, tokenizer_languages={"en_GB": "en"})
    assert corpus.joiner()(corpus.splitter()(REGIONAL)) == REGIONAL


def test_text_for_models_of_older_corpora_is_tokenised_as_these(tmp_path: Path) -> None:
    """They were tokenised with the rules for unknown languages, if the code had a region."""
    tokens = " ".join(processing(tmp_path).splitter()(REGIONAL)).replace("@@ ", "")
    assert [tokens] == plain_pipeline([REGIONAL], "en_GB") != plain_pipeline([REGIONAL], "en")


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
