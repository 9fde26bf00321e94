"""Translate tokens with a fairseq checkpoint, as fairseq-generate does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq.dataclass.configs import GenerationConfig

from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.decoding.shortlist import use_shortlist
from fairseq_plugin.loading import fairseq_silent, load_model
from fairseq_plugin.models.transformer_headpruned import HeadPrunedTransformerModel
from headprune.shortlist import Shortlist
from headprune.translate import LONGEST_TRANSLATION, EngineSettings, torch_device


@dataclass(frozen=True, kw_only=True)
class FairseqEngine:
    """A fairseq model with its beam search; implements ``headprune.translate.Engine``.

    Attributes:
        model: the model in evaluation mode.
        generator: the result of ``task.build_generator``.
        source, target: the dictionaries.
        batch_size: number of sentences that are translated together.
        device: the device of the model.
    """

    model: Any
    generator: Any
    source: Any
    target: Any
    batch_size: int
    device: torch.device

    @property
    def longest_source(self) -> int:
        """The model's length limit without </s>, which is added."""
        return int(self.model.max_positions()[0]) - 1

    def knows(self, token: str) -> bool:
        """Tell if the source dictionary has a token."""
        return token in self.source

    @torch.no_grad()
    def translate(self, sources: Sequence[list[str]]) -> list[list[str]]:
        """The best translation of each source sentence."""
        order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
        translations: list[list[str]] = [[] for _ in sources]
        for start in range(0, len(order), self.batch_size):
            indices = order[start : start + self.batch_size]
            batch = self._batch([sources[index] for index in indices])
            for index, hypotheses in zip(
                indices, self.generator.generate([self.model], batch), strict=True
            ):
                translations[index] = self._tokens(hypotheses[0]["tokens"])
        return translations

    def _batch(self, sources: Sequence[list[str]]) -> dict[str, dict[str, torch.Tensor]]:
        """A batch of B sentences, padded on the left to S tokens, with their end tokens."""
        rows = [[self.source.index(token) for token in tokens] for tokens in sources]
        lengths = torch.tensor([len(row) + 1 for row in rows])  # (B,)
        longest = int(lengths.max())
        tokens = torch.full((len(rows), longest), self.source.pad())  # (B, S)
        for row, ids in zip(tokens, rows, strict=True):
            row[longest - len(ids) - 1 :] = torch.tensor([*ids, self.source.eos()])
        net_input = {
            "src_tokens": tokens.to(self.device),
            "src_lengths": lengths.to(self.device),
        }
        return {"net_input": net_input}

    def _tokens(self, ids: torch.Tensor) -> list[str]:
        """The tokens of a hypothesis without <s>, </s> and padding, as fairseq-generate's."""
        special = {self.target.bos(), self.target.eos(), self.target.pad()}
        return [self.target[number] for number in ids.tolist() if number not in special]


def load_engine(
    checkpoint: Checkpoint,
    data: Path,
    settings: EngineSettings,
) -> tuple[FairseqEngine, tuple[str, str]]:
    """Load a checkpoint's model with the dictionaries of its data.

    Args:
        data: the binarised data folder, or one with the dictionaries.
        settings: the threads translate one batch together.

    Returns:
        The engine, and the source and target language.

    Raises:
        UsageError: there is no such device, the model is of another task than translation, or it
            or the beam does not go with the shortlist.
        DataError: dictionaries are missing or do not fit, or the shortlist is of others.
    """
    place, shortlist = torch_device(settings.device), settings.shortlist
    words = None if shortlist is None else Shortlist.load(shortlist)
    torch.set_num_threads(settings.threads)
    with fairseq_silent():
        model, task = load_model(checkpoint, data)
        model = model.to(place)
        longest = min(LONGEST_TRANSLATION, int(model.max_positions()[1]) - 1)
        search = GenerationConfig(beam=settings.beam_width, max_len_a=0, max_len_b=longest)
        generator = task.build_generator([model], search)
        if words is not None:
            use_shortlist(generator, words, kind=HeadPrunedTransformerModel, name=shortlist)
    engine = FairseqEngine(
        model=model,
        generator=generator,
        source=task.source_dictionary,
        target=task.target_dictionary,
        batch_size=settings.batch_size,
        device=place,
    )
    return engine, (task.cfg.source_lang, task.cfg.target_lang)
