"""The command `headprune shortlist`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headprune.backends import backend_of
from headprune.errors import UsageError
from headprune.files import require_separate
from headprune.shortlist import BEST, FREQUENT, MakesShortlists

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.command()
def shortlist(
    model: Annotated[
        Path,
        typer.Argument(help="A fairseq checkpoint (.pt), for its dictionaries and languages."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")],
    best: Annotated[
        int, typer.Option(min=1, help="Largest number of target words of a source word.")
    ] = BEST,
    frequent: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of target words that every sentence has, the most frequent ones: at least "
            "twice the width of the beam.",
        ),
    ] = FREQUENT,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of the binarised data. Default: the data of its training."),
    ] = None,
) -> None:
    """Make a shortlist of target words for each source word, for a faster beam search.

    The target words of a source word are those that occur in the translations of the largest share
    of its sentences, in the training data. A beam search with --shortlist (of `headprune
    translate`, and of fairseq-generate with the plugin) chooses only among the target words of the
    words of a sentence, and the most frequent words. The file is a vmap.txt of CTranslate2.

    Example:

      headprune shortlist runs/full/checkpoint_best.pt -o shortlist.txt
    """
    require_separate({"--output": output}, inputs=[model])
    backend = backend_of(model)
    if not isinstance(backend, MakesShortlists):
        raise UsageError(f"{model}: shortlists are for translation with fairseq checkpoints")
    word_lists, coverage = backend.make_shortlist(model, best=best, frequent=frequent, data=data)
    word_lists.save(output)
    print(f"{output}: target words for {len(word_lists.best):,} source words")
    print(
        f"{coverage.split} set: {coverage.words:,.0f} of {coverage.vocabulary:,} words for a "
        f"sentence on average; they have {coverage.share:.1%} of the different words of its "
        "reference"
    )
