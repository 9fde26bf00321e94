"""The origin of a study's numbers: versions, signatures, and the commands that make them again."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headprune.budget import SPEED, Budget, percent_text
from headprune.compare.rows import CONTROL
from headprune.components import HEADS
from headprune.errors import UsageError
from headprune.origin import Origin
from headprune.plan import PruningPlan
from headprune.recovery.distillation import DISTILL_SETTINGS
from headprune.recovery.kinds import Recovery
from headprune.report.document import (
    Block,
    Column,
    Commands,
    Document,
    Notes,
    Section,
    Signatures,
    Table,
)
from headprune.report.page.material import ComparisonResult, StudyResult
from headprune.results.control_tests import Located
from headprune.results.environment import Environments
from headprune.results.labels import method_of
from headprune.results.record import Record
from headprune.results.tasks import TRANSLATION
from headprune.select.random import at_random

_TITLE = "Making these numbers again"
_FOLDERS = {
    **{"finetuned": 3, "gates": 3, "before-finetune": 3, "scratch": 3},
    **{"baseline": 1, "models": 5},
}
"""The folders of the records of a study, and the depth of the records' files below them."""
_OF_COMPARISONS = (
    *("task", "metric_of_ablation", "data", "data_dir", "max_length", "epochs", "batch_size"),
    *("learning_rate", "max_train_examples", "hold_out", "bf16", "max_examples", "beam"),
    *DISTILL_SETTINGS,
)
"""Settings of a comparison that are flags of its command."""
_OF_TRAININGS = ("batch_size", "learning_rate", "bf16", *DISTILL_SETTINGS)
"""Those of them that say how models are trained, besides the length."""
_FLAG_NAMES = {"metric_of_ablation": "metric"}
"""Names of flags that are not those of their settings."""
_PLACES = {
    "data": ("DATA", "the folder of the prepared data"),
    "data_dir": ("GLUE", "the folder with the tsv files of the task"),
    "model": ("MODEL", "the folder of the pretrained model"),
}
"""For settings that are absolute paths: the word that stands for the path, and its meaning."""
_OF_THE_RUN = ("task", "model", "plan", "data_dir", "form", "seed", "own")
"""Settings of a fine-tuning that the command states in its own way."""
_OF_GLUE_ALONE = {
    "protocol": "prune-finetune",
    "pooling": "first",
    "weight_decay": 0.0,
    "adam_epsilon": 1e-8,
}
"""Options that `headprune glue` has and `headprune finetune` has not, with the latter's values."""


def provenance(study: StudyResult) -> list[Block]:
    """Commands, versions and signatures of a study."""
    commands = _commands(study.results)
    blocks = [
        *commands,
        *_versions(Environments.of([record for _, record in study.results])),
        *(block for block in study.document.blocks if isinstance(block, Signatures)),
    ]
    return [Section(title=_TITLE if commands else "Signatures", blocks=blocks)] if blocks else []


def provenance_of_comparison(comparison: ComparisonResult, document: Document) -> list[Block]:
    """The command, the versions and the signatures of a comparison."""
    measured = comparison.report.comparison
    settings = measured.settings
    flags = {name: settings[name] for name in _OF_COMPARISONS if name in settings}
    finetuning = settings.get("finetuning")
    if not (finetuning or flags.get("epochs")):  # nothing is trained
        flags = {name: value for name, value in flags.items() if name not in _OF_TRAININGS}
    data: list[str] = []
    meanings_of_data: list[str] = []
    if "own" in settings:
        data, meanings_of_data = _data(settings, task=str(flags.pop("task", "")))
        flags.pop("data_dir", None)
    flags, meanings = _without_places(flags)
    meanings += meanings_of_data
    finetune = [f"--finetune={shlex.join(finetuning)}"] if isinstance(finetuning, list) else []
    rows = measured.rows
    scores = dict.fromkeys(row.score for row in rows if row.score not in (CONTROL, "random"))
    percents = dict.fromkeys(percent_text(row.percent) for row in rows if row.score != CONTROL)
    finetuned_scores = {row.score for row in rows if row.after is not None}
    # Without the option --tune, the models of all scores are fine-tuned.
    has_all_finetuned = not finetuned_scores or finetuned_scores.issuperset(scores)
    tune_options = [name for name in scores if name in finetuned_scores] or ["random"]
    seeds = {row.seed for row in rows if row.score not in (CONTROL, "random")}
    random_seeds = {row.seed for row in rows if row.score == "random"}
    command = [
        *("headprune", "compare", "MODEL", *data, *_flags(flags)),
        *(finetune if finetuning else []),
        *(f"--score={name}" for name in scores),
        *(f"--tune={name}" for name in ([] if has_all_finetuned else tune_options)),
        *(_amount_flag(percent, measured.measure) for percent in percents),
        *(["--latency=latency.json"] if measured.measure == SPEED else []),
        *([f"--verify={measured.verify}"] if measured.measure == SPEED else []),
        *([f"--seeds={len(seeds or random_seeds)}", f"--random-seeds={len(random_seeds)}"]),
        *([f"--components={','.join(measured.components)}"] if measured.components else []),
        *([] if measured.at_least in (None, 1) else [f"--at-least={measured.at_least}"]),
        *([] if measured.speedups else ["--rounds=0"]),
        *(
            f"--recovery={each}"
            for each in measured.recoveries
            if measured.recoveries != (Recovery.FINETUNE,) and each != Recovery.NONE
        ),
        *("-o", "OUT"),
    ]
    signatures = [block for block in document.blocks if isinstance(block, Signatures)]
    weights = str(settings.get("fingerprint", ""))[:12]
    model = [f"MODEL is the model with the weights {weights}"] if weights else []
    caption = f"{'; '.join([*model, *meanings]) or 'The comparison'}:"
    commands = Commands([shlex.join(command)], caption)
    return [
        Section(
            title=_TITLE, blocks=[commands, *_versions(comparison.report.environments), *signatures]
        )
    ]


def _amount_flag(amount: str, measure: str) -> str:
    """The option for a percentage, a budget or a speed."""
    if measure == SPEED:
        return f"--speedup={amount}"
    return f"--percent={amount}" if measure == "units" else f"--budget={amount}% of {measure}"


def _commands(results: Sequence[Located]) -> list[Block]:
    """The command of the study, and one for each row."""
    first_of_row: dict[tuple[str, ...], Located] = {}
    for path, record in results:
        method = method_of(record.plan, default="given")
        key = (record.kind, record.row, record.form, record.task, method)
        first_of_row.setdefault(key, (path, record))
    if not first_of_row:
        return []
    study = results[0][1].study
    targets = [_target(path) for path, _ in first_of_row.values()]
    if study and all(targets):
        glue = any(record.task != TRANSLATION for _, record in results)
        command = (
            f"snakemake -s studies/Snakefile --config {shlex.quote(f'study={study}')}"
            f"{' data_dir=GLUE' if glue else ''} --cores 2"
        )
        where = ", GLUE being a folder with GLUE's tsv files" if glue else ""
        return [
            Commands(
                [command],
                f"In a checkout of headprune, this command makes the study's own table{where}; add "
                "table=NAME after --config for another of its tables:",
            ),
            Commands(
                [f"{command} -- runs/{shlex.quote(f'{study}/{target}')}" for target in targets],
                "One number alone, whatever table it is in; for each row that of its first seed:",
            ),
        ]
    lines: list[str] = []
    meanings: dict[str, None] = {}
    for _, record in first_of_row.values():
        own, meanings_of_record = _own_commands(record)
        lines += own
        meanings |= dict.fromkeys(meanings_of_record)
    caption = "; ".join(["For each row, the commands of its first seed", *meanings])
    return [Commands(lines, f"{caption}:")] if lines else []


def _target(path: Path) -> str | None:
    """The record's file relative to the run folder of a study; None if it is not in one."""
    for folder, depth in _FOLDERS.items():
        parts = path.absolute().parts
        if len(parts) > depth + 1 and parts[-depth - 1] == folder and path.name == "result.json":
            return "/".join(parts[-depth - 1 :])
    return None


def _own_commands(record: Record) -> tuple[list[str], list[str]]:
    """The commands for one record of no study, as far as the record tells them.

    The second list says what the words for absolute paths mean.
    """
    lines = []
    # Gates that were closed, and units of a model that was pruned before, are of no plan file.
    given = not record.plan.is_full and record.settings.get("plan", True) is not None
    plan = ["--plan", "plan.json"] if given else []
    meanings_of_plan = []
    if plan:
        choice = _choice(record)
        if choice is None:
            # The numbers that chose the units are of other files than records.
            method = method_of(record.plan, default="given")
            plan[1] = f"plan-{_file_name(f'{record.row} {method}')}.json"
            meanings_of_plan = [f"{plan[1]} is the plan in the record of {record.row} ({method})"]
        else:
            lines.append(shlex.join(["headprune", "plan", *choice, "-o", plan[1]]))
    if record.task == TRANSLATION:
        return lines, []
    if not record.settings:  # such as those of sub-networks, which no single command trains
        return [], []
    if record.settings.get("from_scratch"):  # a recovery of `headprune compare` alone
        return [], []
    settings = {name: value for name, value in record.settings.items() if name not in _OF_THE_RUN}
    model, meanings = _without_places({"model": record.model} if record.model else {})
    command = ["headprune", "glue", f"--task={record.task}", *_flags(settings), *_flags(model)]
    if "own" in record.settings or any(name in settings for name in ("gates", "layerdrop")):
        if any(settings.pop(name, value) != value for name, value in _OF_GLUE_ALONE.items()):
            return [], []
        data, meanings_of_data = _data(record.settings, task=record.task)
        start = str(model.get("model", "MODEL"))
        command = ["headprune", "finetune", start, *data, *_flags(settings)]
        meanings += meanings_of_data
    meanings += meanings_of_plan
    lines.append(
        shlex.join(
            [
                *command,
                *(plan and [*plan, f"--form={record.form}"]),
                *(f"--seed={record.seed}", "-o", "OUT"),
            ]
        )
    )
    return lines, meanings


def _file_name(row: str) -> str:
    """The label of a row without spaces and signs that shells read."""
    return re.sub(r"[^\w.%+=-]+", "-", row).strip("-")


def _data(settings: Mapping[str, Any], *, task: str) -> tuple[list[str], list[str]]:
    """The flags of the data of a fine-tuning, and the meanings of the words in them."""
    own = settings.get("own")
    if not isinstance(own, dict):
        folder = settings.get("data_dir")
        places, meanings = _without_places({} if folder is None else {"data_dir": folder})
        return [f"--task={task}", *_flags(places)], meanings
    names = {split: str(name).partition("@") for split, name in own["data"].items()}
    columns = dict(zip(("text", "text2"), own["text"], strict=False))
    flags = {
        **{split: split.upper() for split in names},
        **columns,
        **({"label": own["label"]} if own["label"] and own["type"] != "images" else {}),
        **{"task_type": own["type"], "metric": own["metrics"][0]},
    }
    return _flags(flags), [
        f"{split.upper()} is {name} (fingerprint {fingerprint})"
        for split, (name, _, fingerprint) in names.items()
    ]


def _without_places(settings: Mapping[str, object]) -> tuple[dict[str, object], list[str]]:
    """The settings with words for absolute paths, which other machines lack, and their meanings."""
    absolute = {
        name for name in settings.keys() & _PLACES.keys() if Path(str(settings[name])).is_absolute()
    }
    words = {name: _PLACES[name][0] if name in absolute else settings[name] for name in settings}
    return words, [f"{_PLACES[n][0]} is {_PLACES[n][1]}" for n in settings if n in absolute]


def _flags(settings: Mapping[str, object]) -> list[str]:
    """The flags of settings; a setting that is off or not known has none, but one that is 0 has."""
    return [
        f"--{_FLAG_NAMES.get(name, name).replace('_', '-')}"
        + ("" if value is True else f"={value}")
        for name, value in settings.items()
        if isinstance(value, str | int | float) and value is not False
    ]


def _choice(record: Record) -> list[str] | None:
    """The flags of `headprune plan` that choose the same units; None where they are not known."""
    origin = record.plan.origin
    if origin is None or origin.budget is None or origin.seed is None or origin.method != "random":
        return None
    of = _shape(record.plan) if _is_drawn_alike(record.plan, origin) else _model_and_units(record)
    if of is None:
        return None
    at_least = [f"--at-least={origin.at_least}"] if origin.at_least else []
    return [*of, f"--budget={origin.budget}", f"--seed={origin.seed}", *at_least]


def _is_drawn_alike(plan: PruningPlan, origin: Origin) -> bool:
    """True if a share of all units of the plan's shape, drawn again, gives the same plan.

    Draws of each component by itself, and plans of older versions, whose origin has no least
    number of units, do not.
    """
    assert origin.budget is not None and origin.seed is not None
    try:
        budget = Budget.parse(origin.budget)
        if budget.of != "units":
            return False
        return plan == at_random(
            plan.units, seed=origin.seed, budget=budget, at_least=origin.at_least or 0
        )
    except UsageError:  # a speed, or more units than the budget leaves
        return False


def _model_and_units(record: Record) -> list[str] | None:
    """The flags that name the model whose parameters or FLOPs the budget is a share of.

    None for a budget of another kind, without a known model, and where nothing is pruned in some
    component: it may not have been among those that the units were drawn from.
    """
    plan = record.plan
    if record.model is None or plan.origin is None or plan.origin.budget is None:
        return None
    try:
        budget = Budget.parse(plan.origin.budget)
    except UsageError:
        return None
    if budget.of == "units" or any(
        sum(counts) == sum(plan.units[name]) for name, counts in plan.counts.items()
    ):
        return None
    model, _ = _without_places({"model": record.model})
    return [*_flags(model), f"--components={','.join(plan.units)}"]


def _shape(plan: PruningPlan) -> list[str] | None:
    """The flags that give the shape of the unpruned model; None for layers of several sizes."""
    if any(name not in HEADS or len(set(units)) > 1 for name, units in plan.units.items()):
        return None
    return [f"--shape={name}={units[0]}x{len(units)}" for name, units in plan.units.items()]


def _versions(known: Environments) -> list[Block]:
    """The versions of packages, the processors, and the wall time of all records.

    Records of older versions call every CPU ``cpu``.
    """
    rows: list[list[object]] = [[name, ", ".join(each)] for name, each in known.versions.items()]
    if known.devices:
        names = ["a CPU (name not recorded)" if each == "cpu" else each for each in known.devices]
        rows.append(["processor", ", ".join(names)])
    blocks: list[Block] = []
    if rows:
        table = Table(
            caption="Versions:", columns=[Column("package"), Column("version")], rows=rows
        )
        blocks.append(table)
    if known.timed:
        blocks.append(
            Notes(
                [
                    f"{known.seconds / 3600:.1f} hours of training and measuring, for "
                    f"{known.timed} of {known.measured} models."
                ]
            )
        )
    return blocks
