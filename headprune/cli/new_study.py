"""The command `headprune new-study`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from headprune.new_study import Corpus, TrainedBaseline

app = typer.Typer(add_completion=False)


@app.command()
def new_study(
    data: Annotated[Path, typer.Argument(help="A folder that a script of data_prep wrote.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The study to write, such as mine.yaml.")
    ],
    baseline_model: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            help="A checkpoint that is trained already, of stock fairseq or of the plugin, and "
            "unpruned: the study prunes it, in place of training a baseline first.",
            show_default="a baseline is trained",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file.")] = False,
) -> None:
    """Write a study for prepared data, sized to the data and this machine.

    The study prunes 25, 50 and 75% of the heads at random with three seeds. It runs as it is, with
    the command in its first line, and has a comment a line for changes.
    """
    import shutil

    from data_prep.lib.parallel import available_cores
    from headprune.errors import DataError, UsageError
    from headprune.files import write_text_atomically
    from headprune.new_study import study_text

    # What studies take as the name of a run folder.
    is_name = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", output.stem)
    if output.suffix not in (".yaml", ".yml") or not is_name:
        raise UsageError(
            f"--output {output}: give a name such as mine.yaml: letters, digits, '.', '_', '-' only"
        )
    if output.exists() and not overwrite:
        raise DataError(f"{output}: exists already; give another name, or --overwrite")
    cores = available_cores()
    text = study_text(
        _corpus(data),
        path=output,
        cores=cores,
        gpu=shutil.which("nvidia-smi") is not None,
        baseline=None if baseline_model is None else _trained(baseline_model),
    )
    write_text_atomically(output, text)
    command = f"snakemake -s studies/Snakefile --config study={output} --cores {cores}"
    print(f"{output}: {command}")


def _trained(path: Path) -> TrainedBaseline:
    """The facts about a trained model that a study depends on."""
    from headprune.backends import open_model
    from headprune.errors import UsageError
    from headprune.new_study import TrainedBaseline

    opened = open_model(path)
    describe = getattr(opened, "training_flags", None)
    if describe is None:
        raise UsageError(
            f"--baseline-model {path}: a study of translations takes a fairseq checkpoint"
        )
    if not opened.plan.is_full:
        raise UsageError(f"--baseline-model {path}: is pruned already; give the unpruned model")
    arch, options, lr = describe()
    return TrainedBaseline(file=path.absolute(), arch=arch, options=options, lr=lr)


def _corpus(data: Path) -> Corpus:
    """The facts about prepared data that a study depends on."""
    from data_prep.lib.prepared import PreparedCorpus
    from headprune.errors import DataError
    from headprune.new_study import Corpus

    prepared = PreparedCorpus.load(data)
    pair = "-".join(prepared.languages)
    pairs = prepared.facts.counts.get("train")
    if not pairs:
        raise DataError(f"{data}: prep.json does not say how many training pairs there are")
    corpus = prepared.facts.corpus
    unnamed = corpus in (None, "bitext")
    return Corpus(
        folder=data.absolute(),
        name=f"{data.absolute().name if unnamed else corpus}.{pair}",
        pair=pair,
        pairs=pairs,
        tokens=prepared.training_tokens or 30 * pairs,
        joined_dictionary=prepared.facts.joined_dictionary,
    )
