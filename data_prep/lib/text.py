"""Text processing of a prepared corpus: from raw text to tokens, and back."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path

from data_prep.lib.corpus import read
from data_prep.lib.languages import primary
from headprune.errors import DataError
from headprune.files import write_text_atomically
from headprune.json_files import json_object

_MANIFEST = "prep.json"
_FILES = {"subword_nmt": "bpe_codes", "sentencepiece": "sentencepiece_model"}
_PROCESSING = (
    *("corpus", "pair", "source_lang", "target_lang", "tokenizer", "tokenizer_languages"),
    *("bpe", "truecasers"),
    *_FILES.values(),
)
"""The entries of prep.json that say how text is turned into sub-words, and back."""


def _manifest_of(data: Path) -> Path | None:
    """The prep.json of a binarised data folder: in it, as in trimmed vocabularies, or beside it."""
    folder = data.absolute()
    paths = (folder / _MANIFEST, folder.parent / _MANIFEST)
    return next((path for path in paths if path.is_file()), None)


@dataclass(frozen=True, kw_only=True)
class TextProcessing:
    """Text processing with which a corpus was prepared.

    Attributes:
        source_lang, target_lang: language codes such as ``de``.
        tokenizer: ``moses``, or None if raw text was split into sub-words.
        bpe: ``subword_nmt`` or ``sentencepiece``.
        file: the file with the BPE codes or the sentencepiece model.
        truecaser: the truecasing model of the source language; None if text is not truecased.
        full_codes: the corpus was tokenised with the full codes of its languages, ``en_GB``, which
            sacremoses does not know. A model of such a corpus needs text with the same tokens.
    """

    source_lang: str
    target_lang: str
    tokenizer: str | None
    bpe: str
    file: Path
    truecaser: Path | None = None
    full_codes: bool = False

    def __post_init__(self) -> None:
        if self.bpe not in _FILES or self.tokenizer not in ("moses", None):
            raise DataError(
                f"text prepared with {self.tokenizer} and {self.bpe}: only moses with subword_nmt, "
                "or sentencepiece, is known"
            )
        for file in (self.file, self.truecaser):
            if file is not None and not file.is_file():
                raise DataError(f"{file}: no such file")
        if self.truecaser is not None and self.tokenizer is None:
            raise DataError("truecasing needs text that is tokenised")

    @classmethod
    def of_preparation(
        cls, data: Path, *, source_lang: str, target_lang: str
    ) -> TextProcessing | None:
        """Read prep.json in or beside a binarised data folder; None if there is no such file.

        The languages are those of the model, because one preparation serves both directions.

        Raises:
            DataError: prep.json is damaged, or names a file that does not exist.
        """
        path = _manifest_of(data)
        if path is None:
            return None
        facts = json_object(path)
        try:
            truecasers = facts.get("truecasers")
            return cls(
                source_lang=source_lang,
                target_lang=target_lang,
                tokenizer=facts["tokenizer"],
                bpe=facts["bpe"],
                file=path.parent / facts[_FILES[facts["bpe"]]],
                truecaser=path.parent / truecasers[source_lang] if truecasers else None,
                full_codes="tokenizer_languages" not in facts,  # written by an older version
            )
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: not as data_prep writes it ({error!r})") from None

    @staticmethod
    def copy_preparation(data: Path, folder: Path) -> None:
        """Copy what prep.json says of the text's processing, and the files of it, if it is there.

        ``of_preparation`` reads the copy in ``folder``, as it does that beside ``data``.

        Raises:
            DataError: prep.json is damaged, or a file cannot be read.
        """
        path = _manifest_of(data)
        if path is None:
            return
        facts = json_object(path)
        kept = {name: facts[name] for name in _PROCESSING if name in facts}
        try:
            truecasers = (kept.get("truecasers") or {}).values()
            files = [*(kept[name] for name in _FILES.values() if kept.get(name)), *truecasers]
            for file in files:
                target = folder / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path.parent / file, target)
        except (OSError, TypeError, AttributeError) as problem:
            raise DataError(f"{path}: a file that it names cannot be copied: {problem}") from None
        write_text_atomically(folder / _MANIFEST, json.dumps(kept, indent=1) + "\n")

    def splitter(self) -> Callable[[str], list[str]]:
        """Create a function that turns a raw sentence into sub-words.

        It normalises, tokenises and truecases the sentence as the corpus was.

        Raises:
            DataError: the file is neither a sentencepiece model nor codes of subword-nmt, or the
                truecasing model is damaged.
        """
        split = self._subword_splitter()
        if self.tokenizer is None:
            return lambda sentence: split(sentence).split()
        from data_prep.lib.tokenise import make_tokeniser, tokeniser_with_rules

        make = tokeniser_with_rules if self.full_codes else make_tokeniser
        tokenise = make(self.source_lang)
        if self.truecaser is None:
            return lambda sentence: split(tokenise(sentence)).split()
        from data_prep.lib.truecase import make_truecaser

        truecase = make_truecaser(str(self.truecaser))
        return lambda sentence: split(truecase(tokenise(sentence))).split()

    def _subword_splitter(self) -> Callable[[str], str]:
        if self.bpe == "sentencepiece":
            from data_prep.lib.sentencepiece_model import make_splitter

            try:
                return make_splitter(str(self.file))
            except (RuntimeError, OSError) as error:
                raise DataError(f"{self.file}: no sentencepiece model ({error})") from None
        from data_prep.lib.bpe import make_splitter as make_bpe_splitter

        codes = "\n".join(read(self.file)) + "\n"
        try:
            with redirect_stderr(io.StringIO()):  # subword-nmt prints its errors, and exits
                return make_bpe_splitter(codes)
        except (SystemExit, ValueError, IndexError):
            raise DataError(f"{self.file}: no codes of subword-nmt") from None

    def joiner(self) -> Callable[[Sequence[str]], str]:
        """Create a function that joins tokens to text.

        It does the same as fairseq-generate's ``--remove-bpe`` and, for tokenised text,
        ``--tokenizer moses`` or, for truecased text, ``--tokenizer moses_truecased``, with
        ``--user-dir fairseq_plugin``.
        """
        if self.bpe == "sentencepiece":
            return lambda tokens: "".join(tokens).replace("\u2581", " ").strip()
        if self.tokenizer is None:
            return _join_subwords
        from sacremoses import MosesDetokenizer

        detokeniser = MosesDetokenizer(primary(self.target_lang))
        restore: Callable[[Sequence[str]], Sequence[str]] = list
        if self.truecaser is not None:
            from data_prep.lib.truecase import make_detruecaser

            restore = make_detruecaser()

        def join(tokens: Sequence[str]) -> str:
            text: str = detokeniser.detokenize(restore(_join_subwords(tokens).split()))
            return text

        return join


def _join_subwords(tokens: Sequence[str]) -> str:
    return (" ".join(tokens) + " ").replace("@@ ", "").rstrip()
