"""The command `headprune difference`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headprune.errors import UsageError, needing

app = typer.Typer(add_completion=False)


@app.command()
def difference(
    rows: Annotated[
        list[Path],
        typer.Argument(
            metavar="FIRST SECOND ...",
            help="Folders of rows in pairs: the first less the second. A row's folder has the "
            "records of one way to prune, one for each seed. With several pairs, their mean.",
        ),
    ],
    less: Annotated[
        list[str] | None,
        typer.Option(
            help="FIRST,SECOND: a pair whose difference is subtracted, repeatable: how much a "
            "difference changed from one setting to another."
        ),
    ] = None,
    test: Annotated[
        bool,
        typer.Option(
            help="Test the models of each seed on their outputs too; each test takes some seconds."
        ),
    ] = True,
) -> None:
    """Compare rows of trained models seed by seed, with an interval and a test.

    For every metric of the records: the mean difference over the seeds, its 95% interval and the
    p-value of a t-test; where the records have outputs, also how often the two models of a seed
    differ on the examples of the test set. The models of one seed are compared with each other, as
    they share draws and the order of the data.

    Examples:

      headprune difference runs/demo/finetuned/75pct runs/demo/finetuned/control

      headprune difference long/finetuned/75pct long/finetuned/control
      --less short/finetuned/75pct,short/finetuned/control
    """
    with needing("intervals need scipy", install="pip install scipy"):
        import scipy.stats  # noqa: F401
    from headprune.report.differences import ModelRow, differences, document_of
    from headprune.report.render import renderers

    if len(rows) % 2:
        raise UsageError(f"give folders in pairs, FIRST SECOND; {rows[-1]} has no second one")
    loaded = [ModelRow.load(path) for path in rows]
    pairs = list(zip(loaded[::2], loaded[1::2], strict=True))
    subtracted = []
    for text in less or []:
        first, _, second = text.partition(",")
        if not (first and second) or "," in second:
            raise UsageError(f"--less {text}: give two folders with a comma, FIRST,SECOND")
        subtracted.append((ModelRow.load(Path(first)), ModelRow.load(Path(second))))
    found = differences(pairs, less=subtracted, test=test)
    print(renderers()[".md"](document_of(found, pairs, less=subtracted)))
