"""The command `headprune scores`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headprune.backends import PERMUTATIONS, ScoreRequest, backend_of_name
from headprune.cli.options import (
    MaxExamples,
    ScoringOptions,
    kinds_of_models,
    parse_components,
    with_option_groups,
)
from headprune.cli.progress import progress
from headprune.components import HEADS
from headprune.errors import UsageError
from headprune.folders import require_outside
from headprune.locks import locked_folder
from headprune.scores.names import all_scores, scores_by_default, with_combined
from headprune.scores.partial import partial_results

if TYPE_CHECKING:
    from headprune.scores import HeadScores
    from headprune.scores.syntax import Parse

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.command()
@with_option_groups
def scores(
    model: Annotated[
        str,
        typer.Argument(
            help=f"The model: {kinds_of_models()}, of a fine-tuned classifier or a translation "
            "model; or the name of a classifier on the hub."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Folder for SCORE.json and SCORE.png / .svg."),
    ],
    score: Annotated[
        list[str] | None,
        typer.Option(
            help=f"A score to compute, repeatable: {', '.join(all_scores())}.",
            show_default=", ".join(scores_by_default()),
        ),
    ] = None,
    components: Annotated[
        str | None,
        typer.Option(
            help="Components whose units are scored, with commas: heads ES,ED,DS, feed-forward "
            "neurons EF,DF, whole layers EL,DL. The default scores are then those that can score "
            "them.",
            show_default="all heads",
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="Split of the data to compute scores on. Default: train for classifiers, without "
            "the examples that the model was fine-tuned on, and valid for checkpoints: one half "
            "of the examples for scores, the other half for ablation and alone. Pruned models are "
            "measured on dev and test."
        ),
    ] = None,
    max_examples: MaxExamples = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="Metric of ablation, alone and shapley: accuracy (default) or loss for "
            "classifiers, loss for stsb, loss (default) or bleu, by beam search, for checkpoints. "
            "With bleu, shapley takes the loss."
        ),
    ] = None,
    combine: Annotated[
        str,
        typer.Option(
            help="Weights of the score combination; a weight below 0 where low numbers are good."
        ),
    ] = "entropy=-1,sparsity=1,distribution=1",
    conllu: Annotated[
        Path | None,
        typer.Option(
            help="File of parsed sentences (CoNLL-U), to compute the syntactic roles of the "
            "encoder's heads too: the share of dependencies nsubj, obj, amod and advmod along "
            "which a head looks, in each direction.",
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Batch size; only shapley and the movement of classifiers depend on it. "
            "Default: 32; language models and shapley are scored with 8.",
        ),
    ] = None,
    normalise: Annotated[
        bool,
        typer.Option(
            "--normalise",
            help="Divide each layer's scores by their l2 norm, as gradient does (Michel et al.).",
        ),
    ] = False,
    without_labels: Annotated[
        bool,
        typer.Option(
            "--without-labels",
            help="Score by the model's own outputs in the place of labels, so that text is enough: "
            "--train takes a file .txt with one text a line, for classifiers, masked language "
            "models and Hugging Face's translation models. Ablation is then the divergence of the "
            "outputs (KL); gradients are those of labels that the model itself gives.",
        ),
    ] = False,
    permutations: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Largest number of random orders of the score shapley; usually all are needed.",
            show_default=str(PERMUTATIONS),
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(help="Seed of the scores random and shapley, and of labels that are drawn."),
    ] = 1,
    *,
    options: ScoringOptions,
) -> None:
    """Score every head (or neuron, or layer) of a model, as JSON and as heat maps.

    Scores from gradients, in one pass over the data: gradient, the mean over examples of
    |d loss / d gate|, each layer divided by its l2 norm (Michel et al. 2019); gradient-raw, the
    same without the division; taylor, the mean over tokens of |output x gradient| (the code of
    Michel et al.); taylor-molchanov, the mean over examples of |mean over tokens of output x
    gradient| (Molchanov et al. 2017); fisher, the mean over examples of (d loss / d gate)^2, the
    diagonal of the empirical Fisher information of the gates (Kwon et al. 2022); gradient-sublayer,
    as gradient-raw for one gate of all units of a sub-layer, which have the same number (Prasanna
    et al. 2020). Of the steps of a fine-tuning of a copy: movement, minus weight times gradient,
    summed over the steps (Sanh et al. 2020).

    Scores from attention weights, in one pass over the data: confidence, the largest weight on a
    token that is no separator (Voita et al. 2019); entropy; sparsity, the share of weights below
    0.01; hoyer, Hoyer's sparsity; distribution, the divergence from the layer's mean. Of the same
    kind are the roles, each the share of queries whose largest weight is on one token: the token
    before (previous), the query itself (same), the token after (next), the rarest token of the
    sentence (rare) or a separator (separator).

    Scores from masking heads: ablation, the drop of the metric without the head, with its
    significance; alone, the drop of the metric with no other head in the layer; shapley, the head's
    mean share in the metric over random orders of pruning (Held and Yang 2023). It ends early where
    all confidence intervals, by the empirical Bernstein bound, are narrow; with the default number
    of orders they usually are not. The intervals are checked after
    every order. Their level of 95% holds only for a single check after a fixed number of orders.

    Scores without data: magnitude, the norm of the head's weights; random, the baseline.

    With --without-labels, scores by gradients are expectations over the model's own labels (fisher:
    the Fisher information itself), and those from masking are divergences from its own outputs.

    Scores from other scores: combination, the weighted sum of standardised scores (--combine).

    `headprune plan --scores OUT/gradient.json --percent 50` then keeps the heads with the best
    scores.

    Examples:

      headprune scores runs/glue/entailment/model --task entailment --data-dir
      runs/glue/entailment/data -o scores

      headprune scores runs/demo/baseline/model.pt --score ablation --metric bleu -o scores
    """
    names = None if components is None else parse_components(components)
    weights = read_weights(combine)
    wanted = list(score or scores_by_default(names or HEADS))
    if permutations is not None and "shapley" not in with_combined(wanted, weights):
        raise UsageError("--permutations is that of --score shapley")
    require_outside(output, Path(model))
    with locked_folder(output):  # an output that cannot be written to is found before any pass
        parses: list[Parse] = []
        if conllu is not None:
            from headprune.scores.syntax import read_parses

            parses = read_parses(conllu)  # mistakes in them are found before the other passes
        backend = backend_of_name(model)
        request = ScoreRequest(
            scores=wanted,
            components=names,
            split=split,
            metric=metric,
            max_examples=max_examples,
            batch_size=batch_size,
            seed=seed,
            weights=weights,
            watch=progress,
            without_labels=without_labels,
            permutations=PERMUTATIONS if permutations is None else permutations,
        )
        with partial_results(output):
            computed = backend.score(model, request, given=options.given())
            saved = _save(computed, output, normalise=normalise)
        if conllu is not None:
            computed = backend.score_syntax(
                model, parses=parses, file_name=conllu.name, given=options.given()
            )
            saved |= _save(computed, output, normalise=normalise)
        _print_ablations(saved)
        _draw(saved, output)
        print(f"{output}: {', '.join(saved)}")


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


def _save(
    computed: Mapping[str, HeadScores], output: Path, *, normalise: bool
) -> dict[str, HeadScores]:
    saved = {name: each.normalised() if normalise else each for name, each in computed.items()}
    for name, scores in saved.items():
        scores.save(output / f"{name}.json")
    return saved


def _print_ablations(saved: Mapping[str, HeadScores]) -> None:
    from headprune.scores.summary import intervals, one_is_enough, significance

    for name, scores in saved.items():
        if name == "shapley":
            print(f"{name}: {intervals(scores)}")
        if scores.p_values:
            print(f"{name}: {significance(scores)}")
        if name == "alone" and scores.p_values:
            print(f"{name}: {one_is_enough(scores)}")


def _draw(saved: Mapping[str, HeadScores], output: Path) -> None:
    from headprune.report.heat_map import save_heat_maps

    for name, scores in saved.items():
        of_heads = [(part, rows) for part, rows in scores.values.items() if part in HEADS]
        if not of_heads:  # a row of thousands of neurons shows nothing
            continue
        save_heat_maps(
            of_heads,
            title=f"{name} of each head" + (f", {scores.data}" if scores.data else ""),
            label=f"{name}: drop of {scores.settings['metric']}" if scores.p_values else name,
            png=output / f"{name}.png",
            svg=output / f"{name}.svg",
        )
