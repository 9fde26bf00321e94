"""Measure translation models: fairseq-generate's beam search in this process, and sacreBLEU.

All measurements decode in the same way, by fairseq-generate with flags from
``fairseq_plugin.running``. Studies run it in a separate process. Comparisons run it in this
process, where the model need not be written to a file.
"""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils, options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import generate

from data_prep.lib.prepared import PreparedCorpus, not_prepared
from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.loading import fairseq_silent, languages_of, load_split, state_with
from fairseq_plugin.running import GENERATE_DEFAULTS, generation_flags
from headprune.errors import DataError, HeadpruneError, UsageError, reason_of
from headprune.results.bleu import Score, bleu_and_chrf, read_lines, translations
from headprune.results.bleu_tokenizers import DEFAULT, tokenizer_of_reference
from headprune.results.marks import is_constant

_REFERENCE = re.compile(r"T-(\d+)\t(.*)")
_UNKNOWN = ("<<unk>>", "UNKNOWN_IN_REFERENCE")
"""fairseq's mark of an unknown word in a reference, and a word that tokenizers leave whole."""


@dataclass(frozen=True)
class Translations:
    """The detokenised translations of a test set, and the references, in its order.

    Attributes:
        tokenizer: sacreBLEU's tokeniser for the target language.
    """

    texts: Sequence[str]
    references: Sequence[str]
    tokenizer: str = DEFAULT

    def score(self) -> Score:
        """BLEU and chrF by sacreBLEU."""
        return bleu_and_chrf(self.texts, self.references, tokenizer=self.tokenizer)

    @property
    def outputs(self) -> dict[str, str]:
        """The contents of a record's files: ``hypotheses`` and ``reference``."""
        lines = {"hypotheses": self.texts, "reference": self.references}
        return {name: "".join(f"{line}\n" for line in texts) for name, texts in lines.items()}

    @property
    def constant(self) -> bool:
        """True if all translations are equal although the references differ."""
        return is_constant(self.texts, self.references)


def search_flags(**options: float) -> list[str]:
    """The search flags for fairseq-generate: the defaults, changed by ``options``.

    >>> search_flags(beam=4)[2:4]
    ['--beam', '4']
    """
    named = {name.replace("_", "-"): value for name, value in options.items()}
    chosen = {**GENERATE_DEFAULTS, **named}
    return [word for name, value in chosen.items() for word in (f"--{name}", str(value))]


def translate(checkpoint: Checkpoint, data: Path, flags: Sequence[str]) -> Translations:
    """Translate the test set with a checkpoint in memory.

    The references are the plain text that data_prep left beside the data, or else the data's
    target sides.

    Args:
        checkpoint: the model, pruned or not.
        data: the binarised data.
        flags: search options for fairseq-generate; see ``search_flags``.

    Raises:
        UsageError: nothing says how the data's text was prepared, or there is no test set.
        DataError: the data are damaged, or not those of the model.
    """
    corpus = PreparedCorpus.of_binarised(data)
    if corpus is None:
        raise not_prepared(data, use="BLEU cannot be computed")
    languages = languages_of(checkpoint, data)
    given = [*generation_flags(corpus, data=data, languages=languages), *flags]
    lines = _generate(checkpoint, given, data=data).split("\n")
    texts = translations(lines, source=str(data))
    raw = corpus.raw("test", languages[1])
    references = read_lines(raw) if raw.is_file() else _target_sides(lines)
    if len(references) != len(texts):
        raise DataError(
            f"{data}: {len(texts)} sentences in the test set, but {len(references)} raw "
            "references beside it; prepare the data anew"
        )
    return Translations(texts, references, tokenizer_of_reference(raw))


def _target_sides(lines: Sequence[str]) -> list[str]:
    matches = filter(None, (_REFERENCE.fullmatch(line) for line in lines))
    texts = {int(match[1]): match[2].replace(*_UNKNOWN) for match in matches}
    return [texts[number] for number in sorted(texts)]


def _generate(checkpoint: Checkpoint, flags: Sequence[str], *, data: Path) -> str:
    """The output of fairseq-generate."""
    output = io.StringIO()
    try:
        with warnings.catch_warnings(), fairseq_silent():
            warnings.simplefilter("ignore")  # fairseq uses deprecated functions of hydra's
            args = options.parse_args_and_arch(options.get_generation_parser(), input_args=[*flags])
            cfg = convert_namespace_to_omegaconf(args)
            cfg.common_eval.path = str(checkpoint.path)
            # A worker would be forked from this process, whose threads may hold locks.
            cfg.dataset.num_workers = 0
            task = tasks.setup_task(cfg.task)
            load_split(task, cfg.dataset.gen_subset, data, choose=range)  # checks the data
            with _loading(checkpoint), _handlers_kept(), redirect_stdout(output):
                generate.main(cfg)
    except HeadpruneError:
        raise
    except FileNotFoundError as error:
        raise UsageError(f"{data}: no test set or dictionary of the model's ({error})") from None
    # Options and data that do not fit the model can make fairseq fail in any way.
    except Exception as error:
        reason = reason_of(error, last_line=True)
        raise DataError(f"{checkpoint.path}: cannot translate {data}: {reason}") from None
    return output.getvalue()


@contextmanager
def _loading(checkpoint: Checkpoint) -> Iterator[None]:
    """Let fairseq-generate take the model from memory instead of reading a file."""
    load: Any = checkpoint_utils.load_model_ensemble
    state = state_with(checkpoint, eval_bleu=False)

    def load_checkpoint(_: Sequence[str], **keywords: Any) -> Any:
        return load([str(checkpoint.path)], **keywords, state=state)

    checkpoint_utils.load_model_ensemble = load_checkpoint
    try:
        yield
    finally:
        checkpoint_utils.load_model_ensemble = load


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Restore the logging handlers: those of fairseq-generate would write to a closed file."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
