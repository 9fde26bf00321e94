"""The command `headprune bleu`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def bleu(
    generation: Annotated[
        Path,
        typer.Argument(
            help="Output of fairseq-generate, run with --tokenizer moses --remove-bpe, or with "
            "--remove-bpe sentencepiece; its D- lines are scored."
        ),
    ],
    reference: Annotated[Path, typer.Option(help="Raw reference, one sentence a line.")],
    plan: Annotated[Path, typer.Option(help="Plan of the model (JSON).")],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="Result file (JSON); the translations are written beside it."
        ),
    ],
    data: Annotated[str, typer.Option(help="Name of the data, such as wmt14.en-ru.")],
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
            help="Form of the pruning: remove, mask or none.",
            show_default="remove; none if the plan prunes nothing",
        ),
    ] = None,
    finetune: Annotated[
        str, typer.Option(help="Length of the fine-tuning: 30ep, 200up, or none.")
    ] = "none",
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
            help="Percentage of heads that the plan was asked to prune.",
            show_default="that of the plan",
        ),
    ] = None,
    training: Annotated[
        Path | None, typer.Option(help="JSON file of facts about the training.")
    ] = None,
) -> None:
    """Score a translation with sacreBLEU: cased, detokenised BLEU and chrF.

    Writes a result file with both scores, their signatures and the plan, for `headprune report`.
    """
    from headprune.results import translation

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
        data=data,
        requested_percent=requested_percent,
        training=training,
    )
    bleu_score, chrf = record.metrics["bleu"], record.metrics["chrf"]
    print(f"BLEU {bleu_score:.2f}  chrF {chrf:.2f}  {record.signature}")
