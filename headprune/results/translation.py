"""Records of translation models: translations that are scored with sacreBLEU."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from headprune.errors import DataError, UsageError
from headprune.files import require_separate, write_text_atomically
from headprune.json_files import json_object, known_values
from headprune.plan import PruningPlan
from headprune.recovery.distillation import distillation_name
from headprune.results.bleu import (
    bleu_and_chrf,
    has_other_targets,
    read_lines,
    translations,
    warn_of_subwords,
)
from headprune.results.bleu_tokenizers import tokenizer_of_reference
from headprune.results.environment import versions_of
from headprune.results.labels import kind_of, method_of, requested_percent_of, row_of
from headprune.results.marks import CONSTANT, is_constant
from headprune.results.record import KINDS, Record
from headprune.results.record_files import ENDS, beside
from headprune.results.signature import signature
from headprune.results.tasks import TRANSLATION

_TEXT = ENDS["hypotheses"]
"""The end of the name of the file with a record's translations."""


def score(
    *,
    generation: Path,
    reference: Path,
    output: Path,
    plan: Path,
    data: str,
    finetune: str = "none",
    study: str = "",
    kind: str | None = None,
    row: str | None = None,
    seed: int | None = None,
    select: str | None = None,
    form: str | None = None,
    requested_percent: float | None = None,
    training: Path | None = None,
    recovery: str | None = None,
    tokenizer: str | None = None,
) -> Record:
    """Score fairseq-generate's output and write the record, the translations beside it.

    Where kind, row, seed, select, form or requested_percent are not given, they follow from the
    plan and its origin.

    Args:
        generation: the standard output of fairseq-generate.
        reference: the raw reference, one sentence a line.
        output: the record; the translations go to the same name with `.hyp.txt` for `.json`.
        plan: the plan of the model.
        training: JSON file of facts about the training, such as `parameters`; `fingerprint`,
            `seconds`, `device` and `versions` go to the record's own fields.
        tokenizer: sacreBLEU's; default: see `tokenizer_of_reference`.
        study, kind, row, requested_percent: see `Record`.
        seed, select, form, finetune, data, recovery: see `signature`.

    Raises:
        UsageError: no such kind, no seed where the plan's origin has none, or a file to write that
            is read.
        DataError: a file cannot be read, or translations and references do not match.
    """
    if kind is not None and kind not in KINDS:
        raise UsageError(f"kind: {kind!r} is not one of {', '.join(KINDS)}")
    text = beside(output, _TEXT)
    require_separate(
        {"--output": output, "the translations of --output,": text},
        inputs=(generation, reference, plan, training),
    )
    model_plan = PruningPlan.load(plan)
    kind = kind or kind_of(model_plan, finetune=finetune)
    if seed is None:
        seed = None if model_plan.origin is None else model_plan.origin.seed
    if seed is None:
        raise UsageError(f"{plan}: the plan has no seed of its own; give --seed")
    form = form or ("none" if model_plan.is_full else "remove")
    if requested_percent is None:
        requested_percent = requested_percent_of(model_plan)
    lines, references = read_lines(generation), read_lines(reference)
    hypotheses = translations(lines, source=str(generation))
    warn_of_subwords(hypotheses, references, source=str(generation))
    try:
        scored = bleu_and_chrf(
            hypotheses, references, tokenizer=tokenizer or tokenizer_of_reference(reference)
        )
    except DataError as problem:
        raise DataError(f"{generation} against {reference}: {problem}") from None
    if has_other_targets(lines, references):
        print(
            f"warning: {generation} was generated for other sentences than those of {reference}",
            file=sys.stderr,
        )
    facts = {} if training is None else json_object(training)
    known = _Facts(**known_values(_Facts, facts, source=str(training)))
    facts = {name: fact for name, fact in facts.items() if name not in vars(known)}
    if is_constant(hypotheses, references):
        facts[CONSTANT] = True
        print("warning: every sentence has the same translation", file=sys.stderr)
    record = Record(
        study=study,
        kind=kind,
        row=row or row_of(model_plan, default=kind),
        task=TRANSLATION,
        metrics={"bleu": scored.bleu, "chrf": scored.chrf},
        metric_signatures={"bleu": scored.bleu_signature, "chrf": scored.chrf_signature},
        plan=model_plan,
        form=form,
        requested_percent=requested_percent,
        seed=seed,
        finetune=finetune,
        signature=signature(
            model_plan,
            select=select or method_of(model_plan, default="random"),
            seed=seed,
            form=form,
            finetune=finetune,
            data=data,
            recovery=recovery or distillation_name(facts, facts),
        ),
        examples={"test": len(references)},
        files={"hypotheses": text.name, "reference": _relative(reference, output.parent)},
        fingerprint=known.fingerprint,
        seconds=known.seconds,
        device=known.device,
        versions={**known.versions, **versions_of("sacrebleu")},
        training=facts,
    )
    # The translations of an earlier record stay if this one cannot be written.
    record.require_valid(source=f"{output}: not written")
    write_text_atomically(text, "".join(f"{line}\n" for line in hypotheses))
    record.save(output)
    return record


def record_of(hypotheses: Path) -> Record | None:
    """The record that translations belong to: ``result.json`` beside ``result.hyp.txt``.

    Raises:
        DataError: that file is not a record.
    """
    path = hypotheses.with_name(hypotheses.name.removesuffix(_TEXT) + ".json")
    if not hypotheses.name.endswith(_TEXT) or not path.is_file():
        return None
    return Record.load(path)


@dataclass(frozen=True)
class _Facts:
    """The facts about a training that records have fields for."""

    fingerprint: str | None = None
    seconds: float | None = None
    device: str | None = None
    versions: dict[str, str] = field(default_factory=dict)


def _relative(path: Path, folder: Path) -> str:
    # A run folder may be moved as a whole: paths inside it are kept relative.
    return os.path.relpath(path.resolve(), folder.resolve())
