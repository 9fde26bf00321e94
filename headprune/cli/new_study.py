"""The command `headprune new-study`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headprune.cli.options import METRIC, LabelledDataOptions, with_option_groups

if TYPE_CHECKING:
    from headprune.new_labelled_study import LabelledTask
    from headprune.new_study import Corpus, TrainedBaseline

app = typer.Typer(add_completion=False)


@app.command()
@with_option_groups
def new_study(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The study to write, such as mine.yaml.")
    ],
    data: Annotated[
        Path | None,
        typer.Argument(
            help="A folder that a script of data_prep wrote, for a study of fairseq's translations."
        ),
    ] = None,
    baseline_model: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            help="A checkpoint that is trained already, of stock fairseq or of the plugin, and "
            "unpruned: the study prunes it, in place of training a baseline first.",
            show_default="a baseline is trained",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="In place of a folder of data: a pretrained model for transformers, a folder or a "
            "name on the hub, that the study prunes and fine-tunes on --train and --dev, or on "
            "--task.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            help="With --train, the name of the task in tables. Default: that of the column of "
            "labels, or of the study."
        ),
    ] = None,
    metric: Annotated[str | None, METRIC] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file.")] = False,
    *,
    options: LabelledDataOptions,
) -> None:
    """Write a study of your own data, sized to the data and this machine.

    The study prunes 25, 50 and 75% of the heads at random with three seeds. It runs as it is, with
    the command in its first line, and has comments for changes.

    Examples:

      headprune new-study data/enru -o mine.yaml

      headprune new-study --model bert-base-uncased --train train.csv --dev dev.csv --text review
      --label mood -o reviews.yaml
    """
    import shutil

    from data_prep.lib.parallel import available_cores
    from headprune.errors import DataError, UsageError
    from headprune.files import write_text_atomically
    from headprune.new_labelled_study import command_to_run, labelled_study_text
    from headprune.new_study import study_text

    # What studies take as the name of a run folder.
    is_name = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", output.stem)
    if output.suffix not in (".yaml", ".yml") or not is_name:
        raise UsageError(
            f"--output {output}: give a name such as mine.yaml: letters, digits, '.', '_', '-' only"
        )
    if output.exists() and not overwrite:
        raise DataError(f"{output}: exists already; give another name, or --overwrite")
    given = options.given()
    labelled = [f"--{name.replace('_', '-')}" for name in given]
    if data is not None and (model is not None or labelled):
        raise UsageError(
            f"give DATA or {'--model' if model is not None else labelled[0]}, not both"
        )
    if model is None and (labelled or name is not None or metric is not None):
        raise UsageError("give --model too, the pretrained model that is to be pruned")
    if model is not None and baseline_model is not None:
        raise UsageError("--baseline-model goes with a folder of data; give it or --model")
    cores, gpu = available_cores(), shutil.which("nvidia-smi") is not None
    if model is not None:
        task = _task(given, model=model, name=name, metric=metric, study=output.stem)
        text = labelled_study_text(task, model=_absolute(model), path=output, cores=cores, gpu=gpu)
    elif data is not None:
        baseline = None if baseline_model is None else _trained(baseline_model, data)
        text = study_text(_corpus(data), path=output, cores=cores, gpu=gpu, baseline=baseline)
    else:
        raise UsageError(
            "give a folder that a script of data_prep wrote; or --model with --train and --dev"
        )
    write_text_atomically(output, text)
    print(f"{output}: {command_to_run(output, cores=cores)}")


def _task(
    given: Mapping[str, Any], *, model: str, name: str | None, metric: str | None, study: str
) -> LabelledTask:
    """The task that the options describe, with whole paths."""
    from headprune.backends import backend_of_name
    from headprune.errors import UsageError
    from headprune.new_labelled_study import DescribesTasks

    backend = backend_of_name(model)
    if not isinstance(backend, DescribesTasks):
        raise UsageError(
            f"--model {model}: give a pretrained model for transformers; a checkpoint of fairseq "
            "goes with a folder of data, as --baseline-model"
        )
    task = backend.describe_task(model, name=name, metric=metric, default_name=study, given=given)
    files = {
        option: ",".join(map(_absolute, value.split(",")))
        for option, value in task.options.items()
        if option in ("train", "dev")
    }
    return replace(task, options={**task.options, **files})


def _absolute(name: str) -> str:
    """A name with the path of the file or folder that it stands for; any other as it is.

    FOLDER:SPLIT names a part of a folder.
    """
    path, colon, split = name.strip().partition(":")
    return f"{Path(path).absolute()}{colon}{split}" if Path(path).exists() else name.strip()


def _trained(path: Path, data: Path) -> TrainedBaseline:
    """The facts about a trained model that a study depends on; it has to fit the data."""
    from data_prep.lib.prepared import PreparedCorpus
    from headprune.backends import open_model
    from headprune.errors import UsageError
    from headprune.new_study import TrainedBaseline, TrainedTranslator

    opened = open_model(path)
    if not isinstance(opened, TrainedTranslator):
        raise UsageError(
            f"--baseline-model {path}: a study of translations takes a fairseq checkpoint"
        )
    if not opened.plan.is_full:
        raise UsageError(f"--baseline-model {path}: is pruned already; give the unpruned model")
    prepared = PreparedCorpus.load(data)
    opened.require_data(
        prepared.binarised, languages=prepared.languages, name=f"--baseline-model {path}"
    )
    arch, options, lr = opened.training_flags()
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
