"""The description of a prepared corpus, prep.json, for the programs that use the corpus."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from headprune.errors import DataError, UsageError
from headprune.json_files import json_object, known_values

MANIFEST = "prep.json"


def not_prepared(data: Path, *, use: str) -> UsageError:
    """The error for a binarised data folder that nothing describes.

    Args:
        use: what cannot be done without a description.
    """
    inner = f"; give {data / 'bin'}" if (data / "bin").is_dir() else ""
    return UsageError(
        f"{data}: no {MANIFEST} beside it says how its text was prepared, so {use}{inner}"
    )


@dataclass(frozen=True)
class Facts:
    """The values of prep.json that are needed here."""

    corpus: str | None = None
    pair: str | None = None
    source_lang: str | None = None
    target_lang: str | None = None
    tokenizer: str | None = None
    bpe: str | None = None
    truecasers: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    joined_dictionary: bool = True


@dataclass(frozen=True, kw_only=True)
class PreparedCorpus:
    """A corpus that data_prep has prepared.

    Attributes:
        folder: holds prep.json, ``bin`` (what fairseq reads) and ``raw`` (plain text).
        facts: the content of prep.json.
    """

    folder: Path
    facts: Facts

    @classmethod
    def load(cls, folder: Path) -> PreparedCorpus:
        """Read prep.json in a folder.

        Raises:
            DataError: there is none, or it is not as data_prep writes it.
        """
        path = folder / MANIFEST
        source = f"{path}: not the data preparation's description"
        values = known_values(Facts, json_object(path), source=source)
        return cls(folder=folder, facts=Facts(**values))

    @classmethod
    def of_binarised(cls, data: Path) -> PreparedCorpus | None:
        """The corpus that a binarised data folder belongs to; None where nothing describes it."""
        folder = data.absolute().parent
        return cls.load(folder) if (folder / MANIFEST).is_file() else None

    @property
    def binarised(self) -> Path:
        """The folder that fairseq reads."""
        return self.folder / "bin"

    @property
    def training_tokens(self) -> int | None:
        """The number of sub-words of the target sides for training; None if it is not known."""
        size = self._target_size("train")
        return None if size is None else size[1]

    @property
    def test_length(self) -> float | None:
        """The mean number of sub-words of a test reference, without its end; None if not known."""
        size = self._target_size("test")
        return None if size is None or not size[0] else size[1] / size[0] - 1

    def _target_size(self, split: str) -> tuple[int, int] | None:
        """The sentences and sub-words, with ends of sentences, of the target side of a split."""
        log = self.binarised / "preprocess.log"
        if not log.is_file():
            return None
        line = re.compile(rf"\[{self.languages[1]}\] .*{split}\.\S+: (\d+) sents, (\d+) tokens")
        match = line.search(log.read_text(encoding="utf-8", errors="replace"))
        return (int(match[1]), int(match[2])) if match else None

    @property
    def name(self) -> str | None:
        """The name of the corpus in signatures, such as ``multi30k.en-de``."""
        facts = self.facts
        return f"{facts.corpus}.{facts.pair}" if facts.corpus and facts.pair else None

    @property
    def languages(self) -> tuple[str, str]:
        """The codes of the source and the target language.

        Raises:
            DataError: prep.json does not name them.
        """
        source, target = self.facts.source_lang, self.facts.target_lang
        if not source or not target:
            raise DataError(f"{self.folder / MANIFEST}: does not name source_lang and target_lang")
        return source, target

    @property
    def undo_flags(self) -> list[str]:
        """Flags with which fairseq-generate writes detokenised text without sub-words.

        Text of a truecased corpus is detruecased too; this needs ``--user-dir fairseq_plugin``.
        """
        name = "moses_truecased" if self.facts.truecasers else self.facts.tokenizer
        tokenizer = ["--tokenizer", name] if name else []
        symbol = ["sentencepiece"] if self.facts.bpe == "sentencepiece" else []
        return [*tokenizer, "--remove-bpe", *symbol]

    def raw(self, split: str, language: str) -> Path:
        """The plain text of one side of a split."""
        return self.folder / "raw" / f"{split}.{language}"
