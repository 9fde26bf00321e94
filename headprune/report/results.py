"""Result files: one JSON file for each model that was scored."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from headprune.errors import DataError, UsageError
from headprune.files import write_text_atomically
from headprune.plan import HeadPlan
from headprune.report.bleu import bleu_and_chrf, read_generation, read_lines
from headprune.report.signature import signature

KINDS = ("baseline", "control", "pruned", "before-finetune")
"""The unpruned model; the unpruned model fine-tuned for as long as the pruned ones; a pruned and
fine-tuned model; a model right after pruning."""

_FORMAT = "headprune.result"
_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Result:
    """What was measured of one model.

    Attributes:
        row: the label of the table's row that it belongs to.
        percent: share of heads pruned, of the plan.
        requested_percent: the percentage that was asked for, if any; the plan's may differ by
            what a whole number of heads makes of it.
        seed: of the plan and of the fine-tuning.
        bleu, chrf: cased and detokenised, 0 to 100.
        sacrebleu: sacreBLEU's signature of each of the two.
        finetune: length of the fine-tuning, such as `30ep`; `none` without.
        sentences: length of the test set.
        hypotheses, reference: the text files, relative to the result file's folder.
        training: facts about the training, such as `parameters` (weights of the model).
    """

    study: str
    kind: str
    row: str
    percent: float
    requested_percent: float | None
    seed: int
    plan: dict[str, Any]
    counts: str
    heads_kept: int
    bleu: float
    chrf: float
    sacrebleu: dict[str, str]
    signature: str
    finetune: str
    sentences: int
    hypotheses: str
    reference: str
    training: dict[str, Any] = field(default_factory=dict)

    @property
    def parameters(self) -> int | None:
        """Number of weights of the model, where it is known."""
        return self.training.get("parameters")

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        text = json.dumps({"format": _FORMAT, "version": _VERSION, **asdict(self)}, indent=1)
        write_text_atomically(path, text + "\n")

    @classmethod
    def load(cls, path: Path) -> Result:
        """Read a result file.

        Raises:
            DataError: the file cannot be read, is no result, or is of a newer version.
        """
        values = _json_object(path)
        if values.pop("format", None) != _FORMAT:
            raise DataError(f'{path}: not a result (no "format": "{_FORMAT}")')
        version = values.pop("version", None)
        if version != _VERSION:
            raise DataError(
                f"{path}: result of version {version!r}, this headprune reads {_VERSION}"
            )
        names = {f.name for f in fields(cls)}
        wrong = sorted(names.symmetric_difference(values))
        if wrong:
            raise DataError(f"{path}: not a whole result: see {', '.join(wrong)}")
        result = cls(**values)
        numbers = (result.bleu, result.chrf, result.percent, result.seed)
        if result.kind not in KINDS or not all(isinstance(n, (int, float)) for n in numbers):
            raise DataError(f"{path}: not a result: its kind or one of its numbers makes no sense")
        return result


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
        output: the result file; the translations go to the same name with `.hyp.txt`.
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
    text = output.with_suffix(".hyp.txt")
    write_text_atomically(text, "".join(f"{line}\n" for line in hypotheses))
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
        training={} if training is None else _json_object(training),
    )
    result.save(output)
    return result


def _relative(path: Path, folder: Path) -> str:
    # A run folder may be moved as a whole: paths inside it are kept relative.
    return os.path.relpath(path.resolve(), folder.resolve())


def _json_object(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise DataError(f"{path}: cannot be read: {problem.strerror}") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as problem:
        raise DataError(f"{path}: not JSON: {problem}") from None
    if not isinstance(values, dict):
        raise DataError(f"{path}: not a JSON object")
    return values
