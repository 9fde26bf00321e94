"""The command `headprune scores`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headprune.errors import UsageError, needing
from headprune.locks import locked_folder

if TYPE_CHECKING:
    from headprune.scores import HeadScores
    from headprune.scores.syntax import Parse
    from hf_plugin.glue.tasks import Task

app = typer.Typer(no_args_is_help=True, help="How important is each head?")


@app.command()
def scores(
    model: Annotated[
        str,
        typer.Argument(
            help="A fine-tuned classifier (a Hugging Face folder, or a hub's name), or a fairseq "
            "checkpoint (.pt)."
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for SCORE.json and SCORE.png / .svg.")
    ],
    task: Annotated[
        str | None, typer.Option(help="Classifiers: the task of GLUE that it is for.")
    ] = None,
    score: Annotated[
        list[str] | None,
        typer.Option(
            help="Repeatable; see the list above. Default: gradient, gradient-raw, taylor, "
            "taylor-molchanov, confidence, entropy, sparsity, hoyer, distribution, magnitude and "
            "random."
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Classifiers: folder with GLUE's tsv files. Without it: the hub."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Checkpoints: the binarised data folder. Default: the one it was trained on."
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="Default: train for classifiers, of which the examples that the model was not "
            "fine-tuned on are used, and valid for checkpoints: one half of them for scores, the "
            "other for ablation and alone. dev and test are what pruned models are measured on."
        ),
    ] = None,
    max_examples: Annotated[
        int | None, typer.Option(min=1, help="A random subset of so many, the same one every time.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="Of ablation and alone: accuracy (default) or loss for classifiers, loss alone "
            "for stsb, loss (default) or bleu, by beam search, for checkpoints."
        ),
    ] = None,
    beam: Annotated[
        int | None,
        typer.Option(min=1, help="Checkpoints: of the search for bleu.", show_default="5"),
    ] = None,
    combine: Annotated[
        str,
        typer.Option(help="Weights of the score combination; below 0 where low numbers are good."),
    ] = "entropy=-1,sparsity=1,distribution=1",
    conllu: Annotated[
        Path | None,
        typer.Option(
            help="Parsed sentences (CoNLL-U): the encoder heads' syntactic roles too, the share of "
            "dependencies nsubj, obj, amod and advmod that each looks along, in both directions.",
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="It does not change the scores.")] = 32,
    max_length: Annotated[
        int | None,
        typer.Option(min=8, help="Classifiers: tokens of an example, at most.", show_default="128"),
    ] = None,
    normalise: Annotated[
        bool,
        typer.Option(
            "--normalise",
            help="Divide each layer's scores by their l2 norm, as gradient does (Michel et al.).",
        ),
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the score random.")] = 1,
) -> None:
    """Score every head of a model, as JSON and as heat maps.

    By one pass of gradients: gradient, the mean over examples of |d loss / d gate|, each layer
    divided by its l2 norm (Michel et al. 2019), and gradient-raw, the same undivided; taylor, the
    mean over tokens of |output x gradient| (the code of Michel et al.), and taylor-molchanov, the
    mean over an example's tokens before the absolute value (Molchanov et al. 2017).

    By one pass over attention weights: confidence, the largest weight on a token that is no
    separator (Voita et al. 2019); entropy; sparsity, the share of weights below 0.01; hoyer,
    Hoyer's sparsity; distribution, the divergence from the layer's mean; and roles, the share of
    queries whose largest weight is on the token before (previous), on the query itself (same), on
    the token after (next), on the sentence's rarest token (rare), on a separator (separator).

    By trying: ablation, the metric's drop without the head, with its significance; alone, its
    drop when the head is the only one of its layer.

    Without data: magnitude, the norm of the head's weights; random, the baseline.

    From others: combination, the weighted sum of standardised scores (--combine).

    Then `headprune plan --scores OUT/gradient.json --percent 50` keeps the best.

    Examples:

      headprune scores runs/glue/entailment/model --task entailment --data-dir
      runs/glue/entailment/data -o scores

      headprune scores runs/demo/baseline/model.pt --score ablation --metric bleu -o scores
    """
    from headprune.scores.names import IMPORTANCE

    weights = read_weights(combine)
    options: dict[str, Any] = {
        "scores": list(score or IMPORTANCE),
        "max_examples": max_examples,
        "batch_size": batch_size,
        "seed": seed,
        "weights": weights,
        "watch": progress,
    }
    with locked_folder(output):  # what cannot be written to is found before any pass
        parses: list[Parse] = []
        if conllu is not None:
            from headprune.scores.syntax import read_parses

            parses = read_parses(conllu)  # mistakes in them are found before the other passes
        if Path(model).is_file():
            refuse(
                f"{model} is a fairseq checkpoint",
                task=task,
                data_dir=data_dir,
                max_length=max_length,
            )
            found = _of_checkpoint(
                Path(model),
                data=data,
                split=_warned(split or "valid", reported_on="test"),
                metric=metric or "loss",
                beam=beam or 5,
                **options,
            )
            syntax = partial(_syntax, "fairseq_plugin.scores.run", Path(model), data=data)
        else:
            if model.endswith(".pt") and not Path(model).exists():
                raise UsageError(f"{model}: no such checkpoint")
            refuse(f"{model} is no fairseq checkpoint", data=data, beam=beam)
            if task is None:
                raise UsageError(f"{model}: give --task, the task of GLUE that the model is for")
            longest = max_length or 128
            found = _of_classifier(
                model,
                task=task,
                data_dir=data_dir,
                split=_warned(split or "train", reported_on="dev"),
                metric=metric,
                max_length=longest,
                **options,
            )
            syntax = partial(_syntax, "hf_plugin.scores.run", model, max_length=longest)
        made = _save(found, output, normalise=normalise)
        if conllu is not None:
            made |= _save(syntax(parses, file_name=conllu.name), output, normalise=normalise)
        _tell(made)
        _draw(made, output)
        print(f"{output}: {', '.join(made)}")


def read_weights(text: str) -> dict[str, float]:
    """``entropy=-1,sparsity=1`` as a dict.

    Raises:
        UsageError: it is written otherwise.
    """
    weights = {}
    for part in text.split(","):
        name, _, number = part.partition("=")
        try:
            weights[name.strip()] = float(number)
        except ValueError:
            raise UsageError(
                f"--combine {text!r}: write score=weight, with commas, as in entropy=-1,sparsity=1"
            ) from None
    return weights


def _of_classifier(
    model: str, *, task: str, metric: str | None, **options: Any
) -> dict[str, HeadScores]:
    with needing("scoring Hugging Face models needs transformers"):
        from hf_plugin.glue.tasks import task_named
        from hf_plugin.quiet import quieten
        from hf_plugin.scores.run import score_heads
    quieten()
    return score_heads(model, task=task, metric=_metric_of(task_named(task), metric), **options)


def _metric_of(task: Task, metric: str | None) -> str:
    if metric == "accuracy" and task.range is not None:
        raise UsageError(f"--metric accuracy: {task.name} is to predict a number; give loss")
    return metric or task.metric_of_ablation


def _of_checkpoint(path: Path, **options: Any) -> dict[str, HeadScores]:
    with needing("scoring checkpoints needs fairseq"):
        from fairseq_plugin.scores.run import score_heads
    return score_heads(path, **options)


def _syntax(
    module: str, model: str | Path, parses: Sequence[Parse], **options: Any
) -> dict[str, HeadScores]:
    from importlib import import_module

    found: dict[str, HeadScores] = import_module(module).score_syntax(model, parses, **options)
    return found


def refuse(reason: str, **options: object) -> None:
    """Raise a UsageError where an option is given for which there is a reason not to be."""
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"{reason}, for which there is no --{name.replace('_', '-')}")


def _warned(split: str, *, reported_on: str) -> str:
    if split.startswith(reported_on):
        print(
            f"warning: scores computed on {split}: do not report results on the same examples",
            file=sys.stderr,
        )
    return split


def progress(batches: Any, total: int, purpose: str) -> Any:
    """The batches of a pass, with a bar that says what it is for."""
    from rich.console import Console
    from rich.progress import track

    return iter(track(batches, description=purpose, total=total, console=Console(stderr=True)))


def _save(
    found: Mapping[str, HeadScores], output: Path, *, normalise: bool
) -> dict[str, HeadScores]:
    made = {name: each.normalised() if normalise else each for name, each in found.items()}
    for name, scores in made.items():
        scores.save(output / f"{name}.json")
    return made


def _tell(made: Mapping[str, HeadScores]) -> None:
    for name, scores in made.items():
        if scores.p_values:
            print(f"{name}: {significance(scores)}")
        if name == "alone":
            print(f"{name}: {one_is_enough(scores)}")


def _draw(made: Mapping[str, HeadScores], output: Path) -> None:
    from headprune.report.heat_map import save_heat_maps

    for name, scores in made.items():
        save_heat_maps(
            list(scores.values.items()),
            title=f"{name} of each head" + (f", {scores.data}" if scores.data else ""),
            label=f"{name}: drop of {scores.settings['metric']}" if scores.p_values else name,
            png=output / f"{name}.png",
            svg=output / f"{name}.svg",
        )


def significance(scores: HeadScores, level: float = 0.05) -> str:
    """Say how many of the tested differences are significant, and what the test could not find."""
    tested = [
        (drop, p, adjusted)
        for component, rows in scores.values.items()
        for row, p_row, adjusted_row in zip(
            rows,
            scores.p_values[component],
            scores.adjusted_p_values[component],
            strict=True,
        )
        for drop, p, adjusted in zip(row, p_row, adjusted_row, strict=True)
        if drop is not None and p is not None and adjusted is not None
    ]
    metric = scores.settings.get("metric")
    unclear = [drop for drop, p, _ in tested if p >= level]
    return (
        f"{sum(p < level for _, p, _ in tested)} of {len(tested)} heads differ at p < {level:g}, "
        f"{sum(adjusted < level for *_, adjusted in tested)} after Holm's correction "
        f"({metric} {scores.settings.get('base'):.2f} without masks"
        + (f"; the largest drop that is not significant is {max(unclear):.2g})" if unclear else ")")
    )


def one_is_enough(scores: HeadScores, level: float = 0.05) -> str:
    """Say in how many layers the best head alone does as well as all (Michel et al. 2019)."""
    parts = []
    unclear = []
    for component, rows in scores.values.items():
        best = [
            min((drop, p) for drop, p in zip(row, p_row, strict=True) if drop is not None)
            for row, p_row in zip(rows, scores.p_values[component], strict=True)
            if any(drop is not None for drop in row)
        ]
        enough = [drop for drop, p in best if drop <= 0 or p is None or p >= level]
        parts.append(f"{len(enough)} of {len(best)} layers of {component}")
        unclear += enough
    largest = f" of {max(0.0, max(unclear)):.2g} at most" if unclear else ""
    return (
        f"one head is enough in {', '.join(parts)} (its drop{largest} is not significant at "
        f"p < {level:g}; the best head is chosen on the examples that test it)"
    )
