"""The command `headprune scores`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="How important is each head?")


@app.command()
def scores(
    model: Annotated[
        str, typer.Argument(help="A fine-tuned classifier: a Hugging Face folder, or a hub's name.")
    ],
    task: Annotated[str, typer.Option(help="Task of GLUE that it is for.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for SCORE.json and SCORE.png / .svg.")
    ],
    score: Annotated[
        list[str] | None,
        typer.Option(
            help="gradient, taylor, confidence, entropy, sparsity, hoyer, distribution, magnitude "
            "or random. Repeatable. Default: all."
        ),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with GLUE's tsv files. Without it: the hub.")
    ] = None,
    split: Annotated[
        str,
        typer.Option(help="train, so that no score has seen what pruned models are measured on."),
    ] = "train",
    max_examples: Annotated[
        int | None, typer.Option(min=1, help="A random subset of so many, the same one every time.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="It does not change the scores.")] = 32,
    max_length: Annotated[int, typer.Option(min=8, help="Tokens of an example, at most.")] = 128,
    normalise: Annotated[
        bool,
        typer.Option(
            "--normalise", help="Divide each layer's scores by their l2 norm (Michel et al. 2019)."
        ),
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the score random.")] = 1,
) -> None:
    """Score every head of a model, as JSON and as heat maps.

    gradient: |d loss / d gate| of each example (Michel et al. 2019). taylor: |output x gradient|
    of each token. confidence: largest attention weight (Voita et al. 2019). entropy, sparsity,
    hoyer, distribution: of the attention weights. magnitude: norm of the head's weights. random:
    the baseline. Then `headprune plan --scores OUT/gradient.json --percent 50` keeps the best.

    Example:

      headprune scores runs/glue/entailment/model --task entailment --data-dir
      runs/glue/entailment/data -o scores
    """
    import sys

    from rich.progress import track

    from headprune.errors import UsageError
    from headprune.report.heat_map import save_heat_maps
    from headprune.scores.names import SCORES

    try:
        from hf_plugin.quiet import quieten
        from hf_plugin.scores.run import score_heads
    except ImportError as error:
        raise UsageError(
            f"scoring Hugging Face models needs transformers ({error}); see the README, Install"
        ) from None
    quieten()
    if split != "train":
        print(
            f"warning: scores computed on {split}: do not report results on the same examples",
            file=sys.stderr,
        )
    found = score_heads(
        model,
        scores=score or SCORES,
        task=task,
        data_dir=data_dir,
        split=split,
        max_examples=max_examples,
        batch_size=batch_size,
        max_length=max_length,
        seed=seed,
        watch=lambda batches, total, what: iter(track(batches, description=what, total=total)),
    )
    for name, result in found.items():
        made = result.normalised() if normalise else result
        made.save(output / f"{name}.json")
        save_heat_maps(
            [(component, rows) for component, rows in made.values.items()],
            title=f"{name} of each head" + (f", {made.data}" if made.data else ""),
            label=name,
            png=output / f"{name}.png",
            svg=output / f"{name}.svg",
        )
    print(f"{output}: {', '.join(found)}")
