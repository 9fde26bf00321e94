"""The command `headprune bleu`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headprune.form import Form

app = typer.Typer(add_completion=False)


@app.command()
def bleu(
    generation: Annotated[
        Path | None,
        typer.Argument(
            help="Output of fairseq-generate, run with --tokenizer moses --remove-bpe, or with "
            "--remove-bpe sentencepiece; its D- lines are scored."
        ),
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option("--reference", "--ref", help="Raw reference, one sentence a line."),
    ] = None,
    hyp: Annotated[
        Path | None,
        typer.Option(
            help="Instead of fairseq-generate's output: translations as plain text, one a line; - "
            "for standard input. Needs --ref alone."
        ),
    ] = None,
    tokenize: Annotated[
        str | None,
        typer.Option(
            help="sacreBLEU's tokeniser.",
            show_default="that of the reference's prep.json, else of the language that is its "
            "suffix, such as .zh, else 13a",
        ),
    ] = None,
    plan: Annotated[Path | None, typer.Option(help="Plan of the model (JSON).")] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Result file (JSON); the translations are written beside it."
        ),
    ] = None,
    data: Annotated[str | None, typer.Option(help="Name of the data, such as wmt14.en-ru.")] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed of the plan and of the fine-tuning.", show_default="that of the plan"
        ),
    ] = None,
    select: Annotated[
        str | None,
        typer.Option(
            help="Method that chose the units: random, location, none, a score, ...",
            show_default="that of the plan, or random",
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            help="Form of the pruning: remove, mask, uniform or none.",
            show_default="remove; none if the plan prunes nothing",
        ),
    ] = None,
    finetune: Annotated[
        str, typer.Option(help="Length of the fine-tuning: 30ep, 200up, or none.")
    ] = "none",
    recovery: Annotated[
        str | None,
        typer.Option(
            help="For the signature, what was done after pruning besides fine-tuning: refit, or "
            "distill[weight=0.5,temperature=2].",
            show_default="distill[...] where the facts of --training name a teacher",
        ),
    ] = None,
    study: Annotated[str, typer.Option(help="Name of the study.")] = "",
    kind: Annotated[
        str | None,
        typer.Option(
            help="Kind of the model: baseline, control, pruned, before-finetune, or scratch: "
            "trained in the pruned shape from random weights.",
            show_default="pruned; baseline or control if the plan prunes nothing",
        ),
    ] = None,
    row: Annotated[
        str | None,
        typer.Option(
            help="Label of the row in the table.", show_default="the plan's budget, or the kind"
        ),
    ] = None,
    requested_percent: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=100,
            help="Percentage of heads that the plan was asked to prune.",
            show_default="that of the plan",
        ),
    ] = None,
    training: Annotated[
        Path | None, typer.Option(help="JSON file of facts about the training.")
    ] = None,
) -> None:
    """Score a translation with sacreBLEU: cased, detokenised BLEU and chrF.

    With --hyp it prints both scores with their signatures, and the signature of the translations if
    they belong to a record. With fairseq-generate's output it writes a result file with both
    scores, their signatures and the plan, for `headprune report`.

    Examples:

      headprune bleu --hyp output.txt --ref data/enru/raw/test.ru

      headprune bleu generation.txt --ref test.ru --plan plan.json --data news.en-ru -o result.json
    """
    from headprune.errors import UsageError
    from headprune.results import translation
    from headprune.results.signature import may_be_data, require_field, require_length

    if reference is None:
        raise UsageError("give --ref, the raw reference")
    if hyp is not None:
        if generation is not None or any(each is not None for each in (plan, output, data)):
            raise UsageError("--hyp takes --ref alone; leave the record's options out")
        standard_input = Path("/dev/stdin")
        _print_scores(standard_input if hyp == Path("-") else hyp, reference, tokenizer=tokenize)
        return
    if generation is None:
        raise UsageError("give --hyp, or the output of fairseq-generate")
    require_length(finetune, name="--finetune")
    for option, value in {"--recovery": recovery, "--select": select}.items():
        if value is not None:
            require_field(value, name=option)
    if data is not None and not may_be_data(data):
        raise UsageError(f"--data {data!r}: leave out : and |")
    if form is not None and form not in (forms := [*map(str, Form), "none"]):
        raise UsageError(f"--form {form}: not one of {', '.join(forms)}")
    if plan is None or output is None or data is None:
        raise UsageError("a record needs --plan, --data and --output; --hyp needs --ref alone")
    record = translation.score(
        generation=generation,
        reference=reference,
        output=output,
        plan=plan,
        study=study,
        kind=kind,
        row=row,
        seed=seed,
        select=select,
        form=form,
        finetune=finetune,
        recovery=recovery,
        data=data,
        requested_percent=requested_percent,
        training=training,
        tokenizer=tokenize,
    )
    bleu_score, chrf = record.metrics["bleu"], record.metrics["chrf"]
    print(f"BLEU {bleu_score:.2f}  chrF {chrf:.2f}  {record.signature}")


def _print_scores(hypotheses: Path, reference: Path, *, tokenizer: str | None) -> None:
    """Print BLEU and chrF of plain text with their signatures."""
    from headprune.errors import DataError
    from headprune.results.bleu import bleu_and_chrf, read_lines, warn_of_subwords
    from headprune.results.bleu_tokenizers import tokenizer_of_reference
    from headprune.results.translation import record_of

    texts, references = read_lines(hypotheses), read_lines(reference)
    warn_of_subwords(texts, references, source=str(hypotheses))
    try:
        scored = bleu_and_chrf(
            texts, references, tokenizer=tokenizer or tokenizer_of_reference(reference)
        )
    except DataError as problem:
        raise DataError(f"{hypotheses} against {reference}: {problem}") from None
    record = record_of(hypotheses)
    print(f"BLEU {scored.bleu:.2f}  {scored.bleu_signature}")
    print(f"chrF {scored.chrf:.2f}  {scored.chrf_signature}")
    if record is not None:
        print(record.signature)
