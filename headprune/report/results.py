"""Result files of translation: one JSON file for each model that was scored."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from headprune.errors import DataError, UsageError
from headprune.files import write_text_atomically
from headprune.json_files import json_object
from headprune.plan import HeadPlan
from headprune.report.bleu import bleu_and_chrf, read_generation, read_lines
from headprune.report.marks import CONSTANT, is_constant
from headprune.report.record import Record, outside
from headprune.report.signature import signature

KINDS = ("baseline", "control", "pruned", "before-finetune")
"""The unpruned model; the unpruned model fine-tuned for as long as the pruned ones; a pruned and
fine-tuned model; a model right after pruning."""

_ROUNDING = 1e-6
"""sacreBLEU gives 100.00000000000004 for a perfect translation."""


@dataclass(frozen=True, kw_only=True)
class Result(Record):
    """What was measured of one translation model.

    Attributes:
        bleu, chrf: cased and detokenised, 0 to 100.
        sacrebleu: sacreBLEU's signature of each of the two.
        sentences: length of the test set.
        hypotheses, reference: the text files, relative to the result file's folder.
    """

    format = "headprune.result"
    kinds = KINDS

    bleu: float
    chrf: float
    sacrebleu: dict[str, str]
    sentences: int
    hypotheses: str
    reference: str

    def _problem(self) -> str | None:
        missing = [name for name in ("bleu", "chrf") if name not in self.sacrebleu]
        return (
            super()._problem()
            or outside("bleu", self.bleu, 0, 100 + _ROUNDING)
            or outside("chrf", self.chrf, 0, 100 + _ROUNDING)
            or (f"sacrebleu: {missing[0]} is missing" if missing else None)
        )


def score(
    *,
    generation: Path,
    reference: Path,
    output: Path,
    plan: Path,
    study: str,
    kind: str,
    row: str,
    seed: int,
    select: str,
    form: str,
    finetune: str,
    data: str,
    requested_percent: float | None = None,
    training: Path | None = None,
) -> Result:
    """Score fairseq-generate's output and write the result file, the translations beside it.

    Args:
        generation: what fairseq-generate printed.
        reference: the raw reference, one sentence a line.
        output: the result file; the translations go to the same name with `.hyp.txt` for `.json`.
        plan: the head plan of the model.
        training: JSON file of facts about the training, such as `parameters`.
        study, kind, row, requested_percent: see `Result`.
        seed, select, form, finetune, data: see `signature`.

    Raises:
        UsageError: no such kind.
        DataError: a file cannot be read, or translations and references do not match.
    """
    if kind not in KINDS:
        raise UsageError(f"kind: {kind!r} is not one of {', '.join(KINDS)}")
    head_plan = HeadPlan.load(plan)
    hypotheses, references = read_generation(generation), read_lines(reference)
    try:
        scored = bleu_and_chrf(hypotheses, references)
    except DataError as problem:
        raise DataError(f"{generation} against {reference}: {problem}") from None
    # Not with_suffix: wmt14.en-ru has no suffix to give up.
    text = output.with_name(output.name.removesuffix(".json") + ".hyp.txt")
    write_text_atomically(text, "".join(f"{line}\n" for line in hypotheses))
    facts = {} if training is None else json_object(training)
    if is_constant(hypotheses, references):
        facts[CONSTANT] = True
        print("warning: every sentence has the same translation", file=sys.stderr)
    result = Result(
        study=study,
        kind=kind,
        row=row,
        percent=head_plan.percent_pruned,
        requested_percent=requested_percent,
        seed=seed,
        plan=json.loads(head_plan.to_json()),
        counts=str(head_plan),
        heads_kept=head_plan.total_kept,
        bleu=scored.bleu,
        chrf=scored.chrf,
        sacrebleu={"bleu": scored.bleu_signature, "chrf": scored.chrf_signature},
        signature=signature(
            head_plan, select=select, seed=seed, form=form, finetune=finetune, data=data
        ),
        finetune=finetune,
        sentences=len(references),
        hypotheses=text.name,
        reference=_relative(reference, output.parent),
        training=facts,
    )
    result.save(output)
    return result


def _relative(path: Path, folder: Path) -> str:
    # A run folder may be moved as a whole: paths inside it are kept relative.
    return os.path.relpath(path.resolve(), folder.resolve())
