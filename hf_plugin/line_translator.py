"""Translate lines of text with a Hugging Face model."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headprune.errors import UsageError
from headprune.translate import (
    LONGEST_TRANSLATION,
    EngineSettings,
    in_order,
    torch_device,
    warn_of_cut,
)
from hf_plugin.finetuning.models import longest_text
from hf_plugin.scores.own_outputs import translates
from hf_plugin.scores.run import whole_model
from hf_plugin.tasks.heads import require_readable
from hf_plugin.tasks.predictions import on_one_line
from hf_plugin.tokenizers import load_tokenizer
from hf_plugin.translating import set_target_language, translations


class HuggingFaceTranslator:
    """A model with its tokenizer; implements ``headprune.translate.Translator``.

    The search is that of the model's generation config, unless the settings have a beam. A
    translation has at most ``LONGEST_TRANSLATION`` tokens.

    Args:
        model: a model that translates.
        tokenizer: its tokenizer.
        settings: the beam, the size of the batches and the device.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        settings: EngineSettings,
    ) -> None:
        self._model = model.to(torch_device(settings.device))  # type: ignore[arg-type]
        self._tokenizer = tokenizer
        self._settings = settings
        self._longest = longest_text(model, tokenizer)
        self._lines = self._lines_with_unknown = 0

    @classmethod
    def load(cls, folder: Path, settings: EngineSettings) -> HuggingFaceTranslator:
        """Load a model of a folder.

        Args:
            settings: the threads translate one batch together.

        Raises:
            UsageError: it does not translate, does not say into which language, or there is no such
                device.
            DataError: the folder cannot be read.
        """
        torch.set_num_threads(settings.threads)
        model = whole_model(str(folder), prunable=False)
        family = model.config.model_type
        require_readable(family, name=str(folder))
        if not translates(model):
            raise UsageError(
                f"{folder}: a model of the family {family} with the head of {type(model).__name__} "
                "does not translate; give an encoder-decoder such as Marian, NLLB or T5"
            )
        tokenizer = load_tokenizer(str(folder))
        set_target_language(model, tokenizer, name=str(folder))
        return cls(model, tokenizer, settings)

    def translate(self, lines: Iterable[str]) -> Iterator[str]:
        """Translate lines, in order; the translation of an empty line is empty.

        A line that is longer than the model allows is cut, with a warning on standard error. At the
        end a warning says how many lines have tokens that are unknown to the model.
        """
        yield from in_order(
            lines,
            batch_size=self._settings.batch_size,
            prepare=self._counted,
            translate=lambda sources: map(on_one_line, self._translated(sources)),
        )
        if self._lines_with_unknown:
            print(
                f"warning: {self._lines_with_unknown} of {self._lines} lines have words or "
                f"characters that the model does not know; it reads {self._tokenizer.unk_token} "
                "there",
                file=sys.stderr,
            )

    def _counted(self, line_number: int, line: str) -> tuple[int, str] | None:
        """A line with its number; None for an empty one."""
        self._lines += 1
        return (line_number, line) if line.strip() else None

    def _translated(self, lines: Sequence[tuple[int, str]]) -> list[str]:
        """The translations of lines that are not empty, each with its number."""
        texts = [line for _, line in lines]
        encoded = self._tokenizer(texts, verbose=False)
        lengths = list(map(len, encoded["input_ids"]))
        for (number, _), length in zip(lines, lengths, strict=True):
            if length > self._longest:
                warn_of_cut(number, length=length, longest=self._longest)
        if max(lengths) > self._longest:
            encoded = self._tokenizer(texts, truncation=True, max_length=self._longest)
        unknown = self._tokenizer.unk_token_id
        self._lines_with_unknown += sum(unknown in tokens for tokens in encoded["input_ids"])
        return translations(
            self._model,
            self._tokenizer,
            Dataset.from_dict({**encoded}),
            max_length=min(LONGEST_TRANSLATION, self._longest - 1),
            beam=self._settings.beam,
            batch_size=self._settings.batch_size,
        )
