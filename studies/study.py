"""A translation study's YAML file: its keys, their defaults and their checks.

A study trains one unpruned baseline, prunes it in several ways, fine-tunes each pruned model once
a seed, scores everything on the test set and reports. `load_study` reads the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headprune import DataError, UsageError
from headprune.results.paper import paper_table
from headprune.scores.names import FINE_TUNED, require_known
from studies.extending import find_other_study, read_study
from studies.fairseq_flags import architecture_shape
from studies.models import BASELINE, Model
from studies.plans import CONTROL, Row, Rows, heads_of, parse_rows, parse_shape, shape_text
from studies.plugin import processes, running
from studies.sections import RESERVED_FLAGS, Data, Resources, Training, read_resources
from studies.settings import require_plain_path
from studies.tables import Table, as_paper_of, read_tables, rows_of
from studies.yaml_checks import (
    as_choice,
    as_file,
    as_flag,
    as_flags,
    as_list,
    as_mapping,
    as_paper,
    as_seed,
    as_seeds,
    as_text,
    as_title,
    as_whole,
    fill_in,
    study_name,
)

_PLUGIN = "transformer_headpruned"
FORMS = ("remove", "mask")

# Everything that a study may leave out, in one place.
DEFAULTS: dict[str, Any] = {
    "runner": "translation",
    "description": "",
    "shape": None,
    "model": {},
    "form": "remove",
    "precision": "fp32",
    "generate": {},
    "seeds": [1, 2, 3],
    "baseline_seed": 1,
    "baseline_model": None,
    "train": None,
    "control": True,
    "before_finetune": False,
    "scores": [],
    "paper": [],
    "resources": {},
    "plans": None,
    "tables": [],
    "gpus": None,
    "data_of": None,
    "baseline_of": None,
}
# Fine-tunings take one thread each: on a small machine two at a time finish sooner than two
# threads each, one after the other.
RESOURCE_DEFAULTS: dict[str, Resources] = {
    "prepare": Resources(threads=2, mem_mb=4000, runtime=120),
    "baseline": Resources(threads=2, mem_mb=4000, runtime=720),
    "finetune": Resources(threads=1, mem_mb=3000, runtime=720),
    "generate": Resources(threads=1, mem_mb=3000, runtime=60),
    "score": Resources(threads=1, mem_mb=1000, runtime=10),
    "scores": Resources(threads=1, mem_mb=3000, runtime=60),
    "report": Resources(threads=1, mem_mb=2000, runtime=30),
}

REQUIRED = ("name", "data", "arch", "finetune")


@dataclass(frozen=True, kw_only=True)
class Study(Rows):
    """A validated study; flags are ready to be put on fairseq's command line.

    Attributes:
        baseline_model: the trained checkpoint that is the baseline; None trains one.
        train: the training of the baseline and of rows from scratch; None without either.
        shape: the heads of each layer of the unpruned model.
        rows: all rows, the control first if there is one.
        whole: the rows of the study's own table.
        tables: its other tables by name.
        scores: scores of the baseline's heads that the pages show, besides those of the plans.
        data_home, baseline_home: the names of the studies in whose run folders the data and the
            baseline are; the study's own name unless it shares them.
    """

    name: str
    description: str
    data: Data
    arch: str
    form: str
    precision: str
    model_flags: tuple[str, ...]
    baseline_model: Path | None
    train: Training | None
    finetune: Training
    generate_flags: tuple[str, ...]
    shape: Mapping[str, tuple[int, ...]]
    rows: tuple[Row, ...]
    whole: tuple[Row, ...]
    tables: Mapping[str, Table]
    data_home: str
    baseline_home: str
    seeds: tuple[int, ...]
    baseline_seed: int
    control: bool
    before_finetune: bool
    scores: tuple[str, ...]
    paper: tuple[str, ...]
    resources: Mapping[str, Resources]

    @property
    def baseline(self) -> Model:
        """The unpruned model."""
        return Model(kind=BASELINE, row=CONTROL, seed=self.baseline_seed, finetune="none")

    def models(self, rows: Sequence[Row]) -> list[Model]:
        """The models of some rows, the baseline and the control."""
        control = (CONTROL,) if self.control else ()
        trained = [self._model(row, seed=seed) for row in (*control, *rows) for seed in self.seeds]
        untuned = [
            Model(kind="before-finetune", row=model.row, seed=model.seed, finetune="none")
            for model in trained
            if self.before_finetune and model.kind == "pruned" and not model.row.learns_gates
        ]
        return [self.baseline, *trained, *untuned]

    def _model(self, row: Row, *, seed: int) -> Model:
        if row.from_scratch:
            assert self.train is not None  # such a study is refused when it is read
            length = f"scratch-{self.train.length}"
            return Model(kind="scratch", row=row, seed=seed, finetune=length)
        kind = "control" if row is CONTROL else "pruned"
        return Model(kind=kind, row=row, seed=seed, finetune=self.finetune.length)


def load_study(path: Path) -> Study:
    """Read and check one study.

    Mistakes that fairseq or snakemake would report only after hours are found here. Raises
    DataError with the file's name and the key.
    """
    return _load(path, sharers=())


def _load(path: Path, *, sharers: tuple[Path, ...]) -> Study:
    """Read a study; `sharers` are the files of those that share its data or baseline."""
    if path.resolve() in sharers:
        raise DataError(f"{path}: data_of, baseline_of: the study shares with itself")
    raw = read_study(path)
    try:
        return _study(raw, path, sharers=sharers)
    except DataError as problem:
        raise DataError(f"{path}: {problem}") from None


def _study(raw: object, path: Path, *, sharers: tuple[Path, ...]) -> Study:
    values = fill_in(raw, required=REQUIRED, defaults=DEFAULTS)
    data = Data.read(values["data"])
    baseline_model = None
    if values["baseline_model"] is not None:
        baseline_model = as_file(values["baseline_model"], "baseline_model")
        _require_plain(baseline_model, "baseline_model")
    train = None if values["train"] is None else Training.read(values["train"], "train")
    finetune = Training.read(values["finetune"], "finetune")
    arch = _arch(values["arch"])
    model_flags = as_flags(values["model"], "model", reserved=RESERVED_FLAGS)
    given_shape = None if values["shape"] is None else parse_shape(values["shape"])
    seeds = as_seeds(values["seeds"])
    units = architecture_shape(arch, model_flags)
    shape = heads_of(units)
    if given_shape not in (None, shape):
        raise DataError(
            f"shape: {shape_text(given_shape or {})}, but the architecture {arch} with the flags "
            f"of `model` has {shape_text(shape)}; leave `shape` out"
        )

    def read_rows(raw: object, where: str) -> tuple[Row, ...]:
        rows = parse_rows(raw, units=units, seeds=seeds, where=where)
        for row in rows:
            if row.score in FINE_TUNED:
                raise DataError(
                    f"{where}: {row.label}: {row.score} depends on a fine-tuning, and several "
                    "studies share a baseline's scores; give a plan made before: {plan: FILE}"
                )
        return rows

    def check_paper(raw: object) -> tuple[str, ...]:
        names = as_paper_of(raw, pair="-".join(data.pair), known=paper_table)
        return as_paper(list(names), table=paper_table)

    tables = read_tables(values["tables"], read_rows=read_rows, check_paper=check_paper)
    whole, rows = rows_of(values, tables, read_rows=read_rows)
    _require_training(train, baseline_model=baseline_model, rows=rows)
    control = as_flag(values["control"], "control")
    name = study_name(values["name"])
    search = {**running.GENERATE_DEFAULTS, **as_mapping(values["generate"], "generate")}
    as_whole(search["beam"], "generate.beam", least=1)
    study = Study(
        name=name,
        description=as_title(values["description"], "description"),
        data=data,
        arch=arch,
        form=as_choice(values["form"], FORMS, "form"),
        precision=as_choice(values["precision"], running.PRECISIONS, "precision"),
        model_flags=model_flags,
        baseline_model=baseline_model,
        train=train,
        finetune=finetune,
        generate_flags=as_flags(search, "generate", reserved=RESERVED_FLAGS),
        shape=shape,
        rows=(CONTROL, *rows) if control else rows,
        whole=whole,
        tables=tables,
        data_home=name,
        baseline_home=name,
        seeds=seeds,
        baseline_seed=as_seed(values["baseline_seed"], "baseline_seed"),
        control=control,
        before_finetune=as_flag(values["before_finetune"], "before_finetune"),
        scores=_scores(values["scores"]),
        paper=as_paper(values["paper"], table=paper_table),
        resources=_with_gpus(
            read_resources(values["resources"], defaults=RESOURCE_DEFAULTS), values["gpus"]
        ),
    )
    _require_even_steps(study)
    _require_gates_possible(study)
    for key in ("data_of", "baseline_of"):
        if values[key] is not None:
            other_path = find_other_study(values[key], key=key, path=path)
            study = _shared(study, key, _load(other_path, sharers=(*sharers, path.resolve())))
    return study


_SHARED: dict[str, tuple[str, ...]] = {
    "data_of": ("data",),
    # The baseline's translation lies in the shared folder too, hence the flags of fairseq-generate.
    "baseline_of": (
        *("data", "arch", "model_flags", "train", "precision", "baseline_seed"),
        *("baseline_model", "generate_flags"),
    ),
}
"""Attributes that must be equal for two studies to share data, or data and baseline."""


def _shared(study: Study, key: str, other: Study) -> Study:
    """The study with the data, or data and baseline, of another one.

    Raises:
        DataError: the other study's are not the same.
    """
    for attribute in _SHARED[key]:
        if getattr(study, attribute) != getattr(other, attribute):
            what = {"model_flags": "model", "generate_flags": "generate"}.get(attribute, attribute)
            raise DataError(f"{key}: {other.name} has another `{what}`, so it cannot be shared")
    study = replace(study, data_home=other.data_home)
    return replace(study, baseline_home=other.baseline_home) if key == "baseline_of" else study


def _with_gpus(resources: Mapping[str, Resources], gpus: object) -> dict[str, Resources]:
    """The resources with the key `gpus`, the number of GPUs of every training.

    Translating and scoring take one: without it they would share one with a training.
    """
    result = dict(resources)
    if gpus is not None:
        number = as_whole(gpus, "gpus", least=1)
        for rule in ("baseline", "finetune"):
            result[rule] = replace(result[rule], gpu=number)
        for rule in ("generate", "scores"):
            result[rule] = replace(result[rule], gpu=max(result[rule].gpu, 1))
    return result


def _require_even_steps(study: Study) -> None:
    """Check that the GPUs of each training can share out the steps of an update.

    Raises:
        DataError: they cannot.
    """
    trainings = {"train": (study.train, "baseline"), "finetune": (study.finetune, "finetune")}
    for key, (training, rule) in trainings.items():
        if training is not None:
            try:
                processes.with_processes(training.flags, max(study.resources[rule].gpu, 1))
            except UsageError as problem:
                raise DataError(f"{key}: {problem}") from None


def _require_gates_possible(study: Study) -> None:
    """Check that rows whose heads are chosen by learned gates can be trained as the study is.

    Raises:
        DataError: they cannot.
    """
    row = next((row for row in study.rows if row.learns_gates), None)
    if row is None:
        return
    if study.form != "remove":
        raise DataError(f"form: {row.label}: closed gates remove heads; give form: remove")
    if study.finetune.distilled:
        raise DataError(
            f"finetune: {row.label}: gates are not learned towards a teacher's outputs; leave the "
            "row out or give it a study of its own"
        )


def _require_plain(path: Path, key: str) -> None:
    """Check that snakemake reads a path as one.

    Raises:
        DataError: it would not.
    """
    try:
        require_plain_path(str(path), key)
    except UsageError as problem:
        raise DataError(str(problem)) from None


def _require_training(
    train: Training | None, *, baseline_model: Path | None, rows: Sequence[Row]
) -> None:
    """Check that the flags of a training are there for all models that need them.

    Raises:
        DataError: they are missing.
    """
    if train is not None:
        return
    if baseline_model is None:
        raise DataError(
            "missing key: train, the training of the baseline; or give baseline_model, the "
            "checkpoint of one that is trained"
        )
    for row in rows:
        if row.from_scratch:
            raise DataError(f"missing key: train, for {row.label}, trained from random weights")


def _scores(value: Any) -> tuple[str, ...]:
    """Check the names of scores that are to be computed of the baseline."""
    names = tuple(as_text(each, "scores") for each in as_list(value, "scores"))
    try:
        require_known(names)
    except UsageError as problem:
        raise DataError(f"scores: {problem}") from None
    for name in names:
        if name in FINE_TUNED:
            raise DataError(f"scores: {name} depends on a fine-tuning, the baseline has none")
    return names


def _arch(value: Any) -> str:
    arch = as_text(value, "arch")
    if not arch.startswith(_PLUGIN):
        raise DataError(f"arch: {arch} is none of the plugin's ({_PLUGIN}, {_PLUGIN}_small, ...)")
    return arch
