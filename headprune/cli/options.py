"""Options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from headprune.backends import all_backends
from headprune.budget import Budget
from headprune.components import COMPONENTS
from headprune.errors import UsageError
from headprune.recovery.distillation import Distillation

_Command = TypeVar("_Command", bound=Callable[..., None])

CLASSIFIERS, CHECKPOINTS = "Classifiers", "fairseq checkpoints"
OWN_DATA = "Data of your own: text, words or images"
"""Panels of the help for options of one kind of model."""


def kinds_of_models() -> str:
    """The models of all installed backends, for help texts."""
    return " or ".join(backend.models for backend in all_backends())


def in_panel(option: Any, panel: str) -> Any:
    """The option, listed in a panel of the help."""
    option = copy(option)
    option.rich_help_panel = panel
    return option


def with_option_groups(command: _Command) -> _Command:
    """Give a command the options that its keyword-only parameters' dataclasses list as fields.

    A parameter ``options: Group`` stands for one option for each field of ``Group``, whose
    annotations are like those of parameters; the command is called with ``options=Group(...)``.
    """
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    hints = get_type_hints(command, include_extras=True)
    for parameter in inspect.signature(command).parameters.values():
        group = hints[parameter.name]
        if not is_dataclass(group):
            parameters.append(parameter.replace(annotation=group))
            continue
        groups[parameter.name] = group
        field_hints = get_type_hints(group, include_extras=True)
        parameters += [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=field_hints[field.name],
            )
            for field in fields(group)
        ]

    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run  # type: ignore[return-value]


DATA_DIR = typer.Option(
    help="Folder with GLUE's tsv files (CoLA/, SST-2/, ...), or the task's own folder; .tsv.gz is "
    "read too. Default: download nyu-mll/glue from the hub.",
    show_default=False,
)
MAX_TRAIN_EXAMPLES = typer.Option(
    min=1,
    help="Number of training examples: a random subset, the same for every seed. The signature "
    "has the number. As many as there are, or more, is no subset.",
)
HOLD_OUT = typer.Option(
    min=0,
    help="Percentage of the training set that fine-tuning leaves out, for `headprune scores`, "
    "`compare` and `iterate` to compute scores and ablation on. Default: 10, or 0 with "
    "a subset by --max-train-examples, which leaves examples out anyway.",
    show_default=False,
)
OVERWRITE = typer.Option(
    "--overwrite",
    help="Remove results and checkpoints of other settings from OUT. Default: they are refused.",
)
THREADS = typer.Option(min=1, help="Number of CPU threads. Default: all cores.")
MAX_LENGTH = typer.Option(
    min=8, help="Maximum number of tokens of an example; longer ones are cut. Default: 128."
)
LENGTH_AS_TRAINED = typer.Option(
    min=8,
    help="Maximum number of tokens of an example; longer ones are cut. Default: that of the "
    "model's fine-tuning, else 128.",
)
TASK = typer.Option(
    help="The task of GLUE that the classifier was fine-tuned on, in place of --train and --dev."
)
METRIC = typer.Option(
    help="Metric that is reported: accuracy (default), macro-f1, f1 (of the second of two labels) "
    "or matthews; pearson (default), spearman or mse for numbers; entity-f1, token-accuracy or "
    "macro-f1 for words; perplexity (default) or loss for language models."
)
DATA = typer.Option(
    help="Folder of the binarised data. Default: the data that the checkpoint was trained on."
)
BEAM = typer.Option(min=1, help="Width of the beam search. Default: 5.")

MaxExamples = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Compute scores on a random subset of this size, the same one every time.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class PruningOptions:
    """The units that compete, and the examples that they are scored on."""

    components: Annotated[
        str | None,
        typer.Option(
            help="Components whose units are pruned, with commas: heads ES,ED,DS, feed-forward "
            "neurons EF,DF, whole layers EL,DL. Percentages are then of their units; the units of "
            "all others are kept.",
            show_default="all heads",
        ),
    ] = None
    at_least: Annotated[
        int, typer.Option(min=0, help="Minimum number of heads, or neurons, that a layer keeps.")
    ] = 1
    max_examples: MaxExamples = None

    def component_names(self) -> list[str] | None:
        """The components; None where none are named."""
        return None if self.components is None else parse_components(self.components)


def trained_model() -> Any:
    """The argument for a model that comparisons measure."""
    return typer.Argument(
        help=f"The model: {kinds_of_models()}, of a fine-tuned classifier or a translation model."
    )


def budgets_given(percents: Sequence[float] | None, budgets: Sequence[str] | None) -> list[Budget]:
    """The budgets of --percent or --budget; empty where neither is given.

    Raises:
        UsageError: both are given, a text that cannot be read, or budgets of different measures.
    """
    if percents and budgets:
        raise UsageError("give --percent or --budget, not both")
    parsed = [*map(Budget, percents or ()), *map(Budget.parse, budgets or ())]
    if len({budget.of for budget in parsed}) > 1:
        raise UsageError("--budget: give shares of units, of parameters or of flops, not several")
    return parsed


BUDGET = typer.Option(
    help="Instead of --percent: '50%', '50% of parameters', '50% of flops' (for a text of 30 "
    "tokens) or '50% of flops at 65 tokens', of the units of --components."
)


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Options that depend on the kind of model; None where the user gave none."""

    def given(self) -> dict[str, Any]:
        """The values that the user gave, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class LabelledDataOptions(ModelOptions):
    """Labelled examples: a task of GLUE, or files of the user's own."""

    train: Annotated[
        str | None,
        typer.Option(
            help="Training examples: a file .csv, .tsv, .jsonl, .parquet or .conll, .txt for "
            "language models, two files with a comma between them (train.en,train.de) for "
            "translation, a folder of images with one sub-folder for each label, a folder of "
            "the `datasets` library (FOLDER or FOLDER:SPLIT), or a data set on the hub (NAME, "
            "NAME:SPLIT or NAME:CONFIGURATION:SPLIT).",
            rich_help_panel=OWN_DATA,
        ),
    ] = None
    dev: Annotated[
        str | None,
        typer.Option(
            help="Examples to measure on, in the formats of --train.", rich_help_panel=OWN_DATA
        ),
    ] = None
    text: Annotated[
        str | None,
        typer.Option(
            help="Column of the text (of translations, of the source text), or of the lists of "
            "words. Default: text.",
            rich_help_panel=OWN_DATA,
        ),
    ] = None
    text2: Annotated[
        str | None,
        typer.Option(help="Column of a second text, for pairs.", rich_help_panel=OWN_DATA),
    ] = None
    label: Annotated[
        str | None,
        typer.Option(
            help="Column of the label, of the translation, or of the lists of words' labels. "
            "Default: label.",
            rich_help_panel=OWN_DATA,
        ),
    ] = None
    labels: Annotated[
        str | None,
        typer.Option(
            help="The labels in the order of the model's outputs, with commas, for a model whose "
            "config does not name them. Default: those of the model's config, or those of the "
            "training data.",
            rich_help_panel=OWN_DATA,
        ),
    ] = None
    task_type: Annotated[
        str | None,
        typer.Option(
            help="single-label; multi-label, where an example has any number of labels: a list, or "
            "text with | between them; regression, to predict a number; tokens, where every "
            "word has a label: lists, or text with spaces between words and between labels; "
            "images, with a sub-folder for each label; language-modelling, to predict text "
            "without labels, for decoders such as GPT-2; or translation, to write text, for "
            "encoders with a decoder such as Marian. "
            "Default: follows from the metric, the model and the labels.",
            rich_help_panel=OWN_DATA,
        ),
    ] = None
    delimiter: Annotated[
        str | None,
        typer.Option(
            help="Character between the fields of a csv file, or tab. Default: a comma; a tab in "
            ".tsv.",
            rich_help_panel=OWN_DATA,
        ),
    ] = None
    task: Annotated[str | None, in_panel(TASK, CLASSIFIERS)] = None
    data_dir: Annotated[Path | None, in_panel(DATA_DIR, CLASSIFIERS)] = None
    max_length: Annotated[int | None, in_panel(LENGTH_AS_TRAINED, CLASSIFIERS)] = None


@dataclass(frozen=True, kw_only=True)
class ScoringOptions(LabelledDataOptions):
    """The data that scores are computed on."""

    epochs: Annotated[
        float | None,
        typer.Option(
            help="Epochs of the fine-tuning of the score movement. Default: 1.",
            rich_help_panel=CLASSIFIERS,
        ),
    ] = None
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help="Its peak learning rate. Default: 2e-5.",
            rich_help_panel=CLASSIFIERS,
        ),
    ] = None
    data: Annotated[Path | None, in_panel(DATA, CHECKPOINTS)] = None
    finetune: Annotated[
        str | None,
        typer.Option(
            help="Flags of fairseq-train, in quotes, for the fine-tuning of the score movement. "
            "They must include --arch and the model's sizes.",
            rich_help_panel=CHECKPOINTS,
        ),
    ] = None
    beam: Annotated[int | None, in_panel(BEAM, CHECKPOINTS)] = None


@dataclass(frozen=True, kw_only=True)
class CalibrationOptions(LabelledDataOptions):
    """The data that models are re-fitted on."""

    max_length: Annotated[int | None, in_panel(LENGTH_AS_TRAINED, CLASSIFIERS)] = None
    data: Annotated[Path | None, in_panel(DATA, CHECKPOINTS)] = None


@dataclass(frozen=True, kw_only=True)
class TaskModelOptions(LabelledDataOptions):
    """Options to score, measure and fine-tune a model."""

    epochs: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Fine-tuning epochs for each pruned model; 0 disables fine-tuning. Default: 1 in "
            "`compare`, 0 in `iterate` and `subnetworks`.",
            rich_help_panel=CLASSIFIERS,
        ),
    ] = None
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="Batch size of fine-tuning. Default: 32.", rich_help_panel=CLASSIFIERS
        ),
    ] = None
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help="Peak learning rate of fine-tuning. Default: 2e-5.", rich_help_panel=CLASSIFIERS
        ),
    ] = None
    max_train_examples: Annotated[int | None, in_panel(MAX_TRAIN_EXAMPLES, CLASSIFIERS)] = None
    hold_out: Annotated[float | None, in_panel(HOLD_OUT, CLASSIFIERS)] = None
    bf16: Annotated[
        bool | None,
        typer.Option(
            "--bf16",
            help="Fine-tune in bfloat16; for GPUs, and for CPUs that have instructions for it.",
            rich_help_panel=CLASSIFIERS,
        ),
    ] = None
    data: Annotated[Path | None, in_panel(DATA, CHECKPOINTS)] = None
    finetune: Annotated[
        str | None,
        typer.Option(
            help="Flags of fairseq-train, in quotes, to fine-tune pruned models with, --arch and "
            "the model's sizes among them. Default: no fine-tuning.",
            rich_help_panel=CHECKPOINTS,
        ),
    ] = None
    metric: Annotated[
        str | None,
        typer.Option(
            help="For classifiers, the metric that is reported: accuracy (default), macro-f1, f1 "
            "(of the second of two labels) or matthews; pearson (default), spearman or mse for "
            "numbers; entity-f1, token-accuracy or macro-f1 for words; perplexity (default) or "
            "loss for language models. "
            "For checkpoints, the metric of ablation: loss (default), or bleu by beam search, "
            "which takes much longer.",
        ),
    ] = None
    beam: Annotated[int | None, in_panel(BEAM, CHECKPOINTS)] = None


STUDY_LABELS = "Labels, for a study"
"""The panel of options that name a result in tables."""


@dataclass(frozen=True, kw_only=True)
class StudyLabelOptions:
    """The labels of a result in tables."""

    study: Annotated[str, typer.Option(help="Name of the study.", rich_help_panel=STUDY_LABELS)] = (
        ""
    )
    kind: Annotated[
        str | None,
        typer.Option(
            help="Kind of the model: control, pruned or before-finetune. Default: follows from the "
            "plan and the epochs.",
            rich_help_panel=STUDY_LABELS,
        ),
    ] = None
    row: Annotated[
        str | None,
        typer.Option(
            help="Label of the row in the table. Default: control, or the percentage.",
            rich_help_panel=STUDY_LABELS,
        ),
    ] = None
    requested_percent: Annotated[
        float | None,
        typer.Option(
            help="Percentage of heads that the plan was asked to prune.",
            rich_help_panel=STUDY_LABELS,
        ),
    ] = None
    select: Annotated[
        str | None,
        typer.Option(
            help="Method that chose the heads: random, location, ... Default: given with a plan, "
            "none for a control.",
            rich_help_panel=STUDY_LABELS,
        ),
    ] = None


DISTILLATION = "Distillation"
"""The panel of options of fine-tuning towards the unpruned model."""

DISTILL_FROM = typer.Option(
    help="Fine-tune towards the outputs of this model too, with the same labels and the same "
    "tokenizer: usually the unpruned one, fine-tuned.",
    rich_help_panel=DISTILLATION,
)


@dataclass(frozen=True, kw_only=True)
class DistillationOptions(ModelOptions):
    """The weights of distillation's loss."""

    distill_weight: Annotated[
        float | None,
        typer.Option(
            help="Share of the loss, from 0 to 1, that compares the model's outputs with the "
            "teacher's; the loss on the labels has the rest. Default: 0.5.",
            rich_help_panel=DISTILLATION,
        ),
    ] = None
    distill_temperature: Annotated[
        float | None,
        typer.Option(
            help="Temperature of the softened outputs, above 0. Default: 2.",
            rich_help_panel=DISTILLATION,
        ),
    ] = None
    distill_hidden: Annotated[
        float | None,
        typer.Option(
            help="Weight of the mean squared difference of hidden states after each layer that "
            "both models have. Default: 0.",
            rich_help_panel=DISTILLATION,
        ),
    ] = None

    def distillation(self, *, chosen: bool, where: str) -> Distillation:
        """The weights that the user gave, with defaults.

        Args:
            chosen: whether there is a teacher.
            where: the option that gives one, for the message.

        Raises:
            UsageError: a weight without a teacher, or a number out of its range.
        """
        given = self.given()
        if given and not chosen:
            raise UsageError(f"--{next(iter(given)).replace('_', '-')} goes with {where}")
        return Distillation.of_settings(given) or Distillation()


def parse_components(text: str, *, option: str = "--components") -> list[str]:
    """The names of components in ``EF,DF``; messages name the option.

    Raises:
        UsageError: an unknown component.
    """
    names = [name.strip().upper() for name in text.split(",")]
    for name in names:
        if name not in COMPONENTS:
            raise UsageError(f"{option} {text!r}: {name!r} is not one of {', '.join(COMPONENTS)}")
    return names
