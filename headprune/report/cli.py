"""The commands `headprune score` and `headprune report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Score translations and report studies.")


@app.command()
def score(
    generation: Annotated[
        Path,
        typer.Argument(
            help="What fairseq-generate printed, run with --tokenizer moses --remove-bpe, or "
            "--remove-bpe sentencepiece: its D- lines are scored."
        ),
    ],
    reference: Annotated[Path, typer.Option(help="Raw reference, one sentence a line.")],
    plan: Annotated[Path, typer.Option(help="Head plan of the model (JSON).")],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Result file (JSON); translations go beside it."),
    ],
    seed: Annotated[int, typer.Option(help="Seed of the plan and of the fine-tuning.")],
    data: Annotated[str, typer.Option(help="Name of the data, such as wmt14.en-ru.")],
    select: Annotated[
        str, typer.Option(help="How the heads were chosen: random, location, none, ...")
    ] = "random",
    form: Annotated[str, typer.Option(help="remove, mask or none.")] = "remove",
    finetune: Annotated[
        str, typer.Option(help="Length of the fine-tuning: 30ep, 200up, or none.")
    ] = "none",
    study: Annotated[str, typer.Option(help="Name of the study.")] = "",
    kind: Annotated[
        str, typer.Option(help="baseline, control, pruned or before-finetune.")
    ] = "pruned",
    row: Annotated[str, typer.Option(help="Label of the row in the table.")] = "",
    requested_percent: Annotated[
        float | None, typer.Option(help="Percentage that was asked for.")
    ] = None,
    training: Annotated[
        Path | None, typer.Option(help="JSON file of facts about the training.")
    ] = None,
) -> None:
    """Score a translation with sacreBLEU: cased, detokenised BLEU and chrF.

    Writes a result file with both scores, their signatures and the plan, for `headprune report`.
    """
    from headprune.report import results

    result = results.score(
        generation=generation,
        reference=reference,
        output=output,
        plan=plan,
        study=study,
        kind=kind,
        row=row or kind,
        seed=seed,
        select=select,
        form=form,
        finetune=finetune,
        data=data,
        requested_percent=requested_percent,
        training=training,
    )
    print(f"BLEU {result.bleu:.2f}  chrF {result.chrf:.2f}  {result.signature}")


@app.command()
def report(
    results: Annotated[
        list[Path],
        typer.Argument(
            help="Result files of one study, from `headprune score` or `headprune glue`."
        ),
    ],
    output_dir: Annotated[
        Path,
        typer.Option(help="Folder for table.md, table.csv, table.json, figure.png and figure.svg."),
    ],
    title: Annotated[str, typer.Option(help="Title of table and figure.")] = "",
    paper: Annotated[
        list[str] | None,
        typer.Option(
            help="Numbers of Budhraja et al. 2020 to set beside them: table1:en-de, "
            "table1:en-ru, table2 or table3; for GLUE table4, table5 or table6. Repeatable."
        ),
    ] = None,
    test: Annotated[
        bool,
        typer.Option(help="Test each model against the control of its seed (some seconds each)."),
    ] = True,
) -> None:
    """Gather the results of a study into a table and a figure.

    Of a translation study or of one on GLUE: the result files say which. Figures are means and
    sample standard deviations over the seeds, beside the control (the unpruned model, fine-tuned
    as long), each with its signature. The table also goes to standard output.
    """
    from headprune.report.make import make_report

    made = make_report(results, title=title, paper=paper or [], test=test)
    made.save(output_dir)
    print(made.markdown)
