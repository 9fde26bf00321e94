"""A study's YAML file: what may stand in it, what is filled in, what is refused.

A study trains one unpruned baseline, prunes it in several ways, fine-tunes each pruned model once
a seed, scores everything on the test set and reports. `load_study` reads the file that says which.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from headprune import COMPONENTS, DataError, HeadPlan, UsageError
from headprune.report.paper import paper_table
from headprune.select import at_random, by_location

PRECISIONS = ("fp32", "fp16", "bf16")
FORMS = ("remove", "mask")

# Everything that a study may leave out, in one place.
DEFAULTS: dict[str, Any] = {
    "description": "",
    "model": {},
    "form": "remove",
    "precision": "fp32",
    "generate": {},
    "seeds": [1, 2, 3],
    "baseline_seed": 1,
    "control": True,
    "before_finetune": False,
    "paper": [],
    "resources": {},
}
# fairseq drops the last batch where its size is no multiple of this, 8 unless it is set: up to
# seven sentences, of the test set too.
WHOLE_DATA = {"required-batch-size-multiple": 1}
# Only the last and the best checkpoint are kept: the last to go on from, the best to report.
TRAIN_DEFAULTS: dict[str, Any] = {
    **WHOLE_DATA,
    "log-format": "simple",
    "log-interval": 50,
    "no-epoch-checkpoints": True,
    "num-workers": 0,
}
GENERATE_DEFAULTS: dict[str, Any] = {**WHOLE_DATA, "beam": 5, "batch-size": 64}
# What a job asks of a scheduler: CPU threads, memory in MiB, time in minutes. `gpu` may be added.
# Fine-tunings take one thread each: on a small machine two at a time finish sooner than two
# threads each, one after the other.
RESOURCE_DEFAULTS: dict[str, dict[str, int]] = {
    "prepare": {"threads": 2, "mem_mb": 4000, "runtime": 120},
    "baseline": {"threads": 2, "mem_mb": 4000, "runtime": 720},
    "finetune": {"threads": 1, "mem_mb": 3000, "runtime": 720},
    "generate": {"threads": 1, "mem_mb": 3000, "runtime": 60},
    "score": {"threads": 1, "mem_mb": 1000, "runtime": 10},
    "report": {"threads": 1, "mem_mb": 2000, "runtime": 30},
}
RESOURCE_KEYS = ("threads", "mem_mb", "runtime", "gpu")

REQUIRED = ("name", "data", "arch", "shape", "train", "finetune", "plans")
# fairseq flags that the study runner sets itself, and where they come from.
RESERVED_FLAGS = {
    "arch": "the study's `arch`",
    "user-dir": "the study runner",
    "seed": "`seeds` and `baseline_seed`",
    "cpu": "the machine that the job runs on",
    "fp16": "`precision`",
    "bf16": "`precision`",
    "save-dir": "the run folder",
    "restore-file": "the run folder",
    "finetune-from-model": "the study runner",
    "head-plan": "`plans`",
    "head-form": "`form`",
    "path": "the run folder",
    "results-path": "the run folder",
    "model-overrides": "the study runner",
    "gen-subset": "the study runner",
    "tokenizer": "the data's prep.json",
    "remove-bpe": "the data's prep.json",
    "post-process": "the data's prep.json",
    "source-lang": "the data's prep.json",
    "target-lang": "the data's prep.json",
}
RESERVED_DATA_ARGS = {"out": "the run folder", "workers": "`resources`"}
PLAN_KINDS = ("percent", "keep", "prune")
PLAN_KEYS = (*PLAN_KINDS, "components", "at_least", "label", "paper_percent")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the study's table: a way to prune, sampled once a seed.

    Exactly one of `percent`, `keep` and `prune` is given, as for the selectors of `headprune`.

    Attributes:
        key: the label as it stands in file names.
        requested_percent: the percentage as the study puts it, which a whole number of heads may
            miss by a little; None where it has none.
    """

    key: str
    label: str
    percent: float | None = None
    keep: Mapping[str, int | str] | None = None
    prune: str | None = None
    components: tuple[str, ...] | None = None
    at_least: int = 0
    requested_percent: float | None = None

    @property
    def is_control(self) -> bool:
        """Whether this is the unpruned model, fine-tuned for as long as the pruned ones."""
        return self is CONTROL

    @property
    def select(self) -> str:
        """How the heads are chosen, as signatures write it."""
        if self.is_control:
            return "none"
        return "random" if self.prune is None else "location"

    def plan(self, shape: Mapping[str, tuple[int, ...]], *, seed: int) -> HeadPlan:
        """The heads to keep. Raises UsageError where `shape` does not allow what is asked for."""
        if self.prune is not None:
            return by_location(shape, prune=self.prune, components=self.components)
        return at_random(
            shape, seed=seed, percent=self.percent, keep=self.keep, at_least=self.at_least
        )


CONTROL = Row(key="control", label="control", percent=0.0, requested_percent=0.0)


@dataclass(frozen=True, kw_only=True)
class Study:
    """A validated study; flags are ready to be put on fairseq's command line."""

    name: str
    description: str
    data_name: str
    pair: tuple[str, str]
    data_script: str
    data_args: tuple[str, ...]
    arch: str
    form: str
    precision: str
    model_flags: tuple[str, ...]
    train_flags: tuple[str, ...]
    finetune_flags: tuple[str, ...]
    generate_flags: tuple[str, ...]
    finetune_length: str
    shape: Mapping[str, tuple[int, ...]]
    rows: tuple[Row, ...]
    seeds: tuple[int, ...]
    baseline_seed: int
    control: bool
    before_finetune: bool
    paper: tuple[str, ...]
    resources: Mapping[str, Mapping[str, int]]

    def row(self, key: str) -> Row:
        """The row of that key; the control row stands for the unpruned model, fine-tuned or not."""
        return next(row for row in (CONTROL, *self.rows) if row.key == key)

    def plan(self, key: str, *, seed: int) -> HeadPlan:
        """The plan of the row of that key."""
        return self.row(key).plan(self.shape, seed=seed)


def find_study(study: str, *, folder: Path) -> Path:
    """The YAML file for a name in `folder` (`demo`) or a path (`my/study.yaml`)."""
    by_name = folder / f"{study}.yaml"
    if by_name.is_file():
        return by_name
    path = Path(study)
    if path.is_file():
        return path
    known = ", ".join(sorted(p.stem for p in folder.glob("*.yaml")))
    raise DataError(
        f"study: no study is called {study!r} and no such file exists; studies here: {known}"
    )


def load_study(path: Path) -> Study:
    """Read and check one study.

    Raises DataError, with the file's name and the key, for whatever fairseq or snakemake would
    only trip over after hours.
    """
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)
    except OSError as problem:
        raise DataError(f"{path}: cannot be read: {problem.strerror}") from problem
    except UnicodeDecodeError as problem:
        raise DataError(f"{path}: not UTF-8 text") from problem
    except yaml.YAMLError as problem:
        raise DataError(f"{path}: not valid YAML: {' '.join(str(problem).split())}") from problem
    try:
        return _study(raw)
    except DataError as problem:
        raise DataError(f"{path}: {problem}") from None


class _StrictLoader(yaml.SafeLoader):
    """YAML that refuses a key given twice, of which PyYAML silently drops the first."""


def _mapping_without_repeats(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in seen:
            raise yaml.YAMLError(
                f"key {key!r} is given twice (line {key_node.start_mark.line + 1})"
            )
        seen.add(key)
    mapping: dict[Any, Any] = loader.construct_mapping(node, deep=True)
    return mapping


_StrictLoader.add_constructor(
    yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping_without_repeats
)


def _study(raw: object) -> Study:
    given = _mapping(raw, "the file")
    _only(given, (*REQUIRED, *DEFAULTS), where="")
    missing = [key for key in REQUIRED if key not in given]
    if missing:
        raise DataError(f"missing key: {', '.join(missing)}")
    values = {**DEFAULTS, **given}

    name = _text(values["name"], "name")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise DataError(f"name: {name!r} names the run folder: letters, digits, '.', '_', '-' only")
    data = _mapping(values["data"], "data")
    _only(data, ("name", "pair", "script", "args"), where="data.")
    for key in ("name", "pair", "script"):
        if key not in data:
            raise DataError(f"missing key: data.{key}")

    finetune = _mapping(values["finetune"], "finetune")
    shape = _shape(values["shape"])
    seeds = _seeds(values["seeds"])
    rows = _rows(values["plans"], shape=shape, seeds=seeds)
    control = _flag(values["control"], "control")
    if control:
        rows = (CONTROL, *rows)
    return Study(
        name=name,
        description=_text(values["description"], "description"),
        data_name=_text(data["name"], "data.name"),
        pair=_pair(data["pair"]),
        data_script=_text(data["script"], "data.script"),
        data_args=_flags(data.get("args", {}), "data.args", reserved=RESERVED_DATA_ARGS),
        arch=_text(values["arch"], "arch"),
        form=_choice(values["form"], FORMS, "form"),
        precision=_choice(values["precision"], PRECISIONS, "precision"),
        model_flags=_flags(values["model"], "model"),
        train_flags=_flags({**TRAIN_DEFAULTS, **_mapping(values["train"], "train")}, "train"),
        finetune_flags=_flags({**TRAIN_DEFAULTS, **finetune}, "finetune"),
        generate_flags=_flags(
            {**GENERATE_DEFAULTS, **_mapping(values["generate"], "generate")}, "generate"
        ),
        finetune_length=_length(finetune),
        shape=shape,
        rows=rows,
        seeds=seeds,
        baseline_seed=_whole(values["baseline_seed"], "baseline_seed", least=0),
        control=control,
        before_finetune=_flag(values["before_finetune"], "before_finetune"),
        paper=_paper(values["paper"]),
        resources=_resources(values["resources"]),
    )


def _rows(
    raw: object, *, shape: Mapping[str, tuple[int, ...]], seeds: tuple[int, ...]
) -> tuple[Row, ...]:
    entries = _list(raw, "plans")
    if not entries:
        raise DataError("plans: at least one way to prune is needed, such as {percent: 50}")
    rows: list[Row] = []
    for number, entry in enumerate(entries, start=1):
        where = f"plans[{number}]"
        row = _row(_mapping(entry, where), where=where)
        for other in (CONTROL, *rows):
            if row.key == other.key:
                raise DataError(
                    f"{where}: {row.label!r} is the same row as {other.label!r}; "
                    "leave one out or give it a `label` of its own"
                )
        for seed in seeds:
            try:
                row.plan(shape, seed=seed)
            except UsageError as problem:
                raise DataError(f"{where}: {problem}") from None
        rows.append(row)
    return tuple(rows)


def _row(entry: Mapping[str, Any], *, where: str) -> Row:
    _only(entry, PLAN_KEYS, where=f"{where}.")
    kinds = [kind for kind in PLAN_KINDS if kind in entry]
    if len(kinds) != 1:
        got = " and ".join(kinds) or "none of them"
        raise DataError(f"{where}: exactly one of percent, keep, prune is needed, got {got}")
    kind = kinds[0]
    if "components" in entry and kind != "prune":
        raise DataError(f"{where}.components: only `prune` takes it")
    if "at_least" in entry and kind != "percent":
        raise DataError(f"{where}.at_least: only `percent` takes it")

    percent = _percent(entry["percent"], f"{where}.percent") if kind == "percent" else None
    keep = _keep(entry["keep"], f"{where}.keep") if kind == "keep" else None
    prune = _text(entry["prune"], f"{where}.prune") if kind == "prune" else None
    components: tuple[str, ...] | None = None
    if "components" in entry:
        named = _list(entry["components"], f"{where}.components")
        components = tuple(_choice(c, COMPONENTS, f"{where}.components") for c in named)
    at_least = _whole(entry.get("at_least", 0), f"{where}.at_least", least=0)

    if percent is not None:
        label = f"{percent:g}%" + (f" at least {at_least}" if at_least else "")
    elif keep is not None:
        label = " ".join(f"{name}={counts}" for name, counts in keep.items())
    else:
        label = " ".join((prune or "", *(components or ())))
    label = _text(entry.get("label", label), f"{where}.label")
    requested = percent
    if "paper_percent" in entry:
        requested = _percent(entry["paper_percent"], f"{where}.paper_percent")
    return Row(
        key=re.sub(r"[^A-Za-z0-9.]+", "-", label.replace("%", "pct")).strip("-"),
        label=label,
        percent=percent,
        keep=keep,
        prune=prune,
        components=components,
        at_least=at_least,
        requested_percent=requested,
    )


def _keep(raw: object, where: str) -> dict[str, int | str]:
    """Heads kept: one digit a layer, numbers with commas, or one number for the component."""
    counts: dict[str, int | str] = {}
    for name, value in _components(raw, where).items():
        # Unquoted, 888444 is a number to YAML and 012345 an octal one: only text is unambiguous.
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if not isinstance(value, str) and not (is_number and value < 1000):
            raise DataError(
                f"{where}.{name}: {value!r}: write the heads of each layer in quotes ('888444'), "
                "or the number of heads in the component (14)"
            )
        counts[name] = value
    return counts


def _components(raw: object, where: str) -> dict[str, Any]:
    mapping = _mapping(raw, where)
    _only(mapping, COMPONENTS, where=f"{where}.")
    if not mapping:
        raise DataError(f"{where}: name at least one of {', '.join(COMPONENTS)}")
    return {name: mapping[name] for name in COMPONENTS if name in mapping}


def _shape(raw: object) -> dict[str, tuple[int, ...]]:
    shape: dict[str, tuple[int, ...]] = {}
    for name, value in _components(raw, "shape").items():
        match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", str(value))
        if not match:
            raise DataError(f"shape.{name}: {value!r} is not heads x layers, such as 8x6")
        shape[name] = (int(match[1]),) * int(match[2])
    return shape


def _length(finetune: Mapping[str, Any]) -> str:
    """How long fine-tuning goes on, as it stands in signatures: `30ep` or `200up` (updates)."""
    if "max-epoch" in finetune:
        return f"{_whole(finetune['max-epoch'], 'finetune.max-epoch', least=1)}ep"
    if "max-update" in finetune:
        return f"{_whole(finetune['max-update'], 'finetune.max-update', least=1)}up"
    raise DataError("finetune: max-epoch or max-update is needed, or it would never end")


def _flags(
    raw: object, where: str, *, reserved: Mapping[str, str] = RESERVED_FLAGS
) -> tuple[str, ...]:
    """`{max-tokens: 2048, share-all-embeddings: true}` as command line arguments."""
    arguments: list[str] = []
    for key, value in _mapping(raw, where).items():
        if key in reserved:
            raise DataError(f"{where}.{key}: not to be set here, it comes from {reserved[key]}")
        if not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9-]*", key):
            raise DataError(f"{where}.{key}: write it as on the command line, without dashes")
        if value is True:
            arguments.append(f"--{key}")
        elif value is False or value is None:
            continue
        elif isinstance(value, (str, int, float)):
            arguments += [f"--{key}", str(value)]
        else:
            raise DataError(f"{where}.{key}: a text, a number, true or false is needed")
    return tuple(arguments)


def _resources(raw: object) -> dict[str, dict[str, int]]:
    given = _mapping(raw, "resources")
    _only(given, tuple(RESOURCE_DEFAULTS), where="resources.")
    merged = {rule: dict(values) for rule, values in RESOURCE_DEFAULTS.items()}
    for rule, values in given.items():
        mapping = _mapping(values, f"resources.{rule}")
        _only(mapping, RESOURCE_KEYS, where=f"resources.{rule}.")
        for key, value in mapping.items():
            least = 0 if key == "gpu" else 1
            merged[rule][key] = _whole(value, f"resources.{rule}.{key}", least=least)
    return merged


def _pair(raw: object) -> tuple[str, str]:
    match = re.fullmatch(r"([a-z]{2,3})-([a-z]{2,3})", str(raw))
    if not match:
        raise DataError(f"data.pair: {raw!r} is not source-target, such as en-de")
    return match[1], match[2]


def _paper(raw: object) -> tuple[str, ...]:
    names = [_text(name, "paper") for name in _list(raw, "paper")]
    for name in names:
        try:
            paper_table(name)
        except UsageError as problem:
            raise DataError(str(problem)) from None
    return tuple(names)


def _seeds(raw: object) -> tuple[int, ...]:
    seeds = [_whole(seed, "seeds", least=0) for seed in _list(raw, "seeds")]
    if not seeds:
        raise DataError("seeds: at least one is needed")
    if len(set(seeds)) != len(seeds):
        raise DataError(f"seeds: {seeds} repeats one")
    return tuple(seeds)


def _only(mapping: Mapping[str, Any], known: Sequence[str], *, where: str) -> None:
    for key in mapping:
        if key not in known:
            raise DataError(f"unknown key: {where}{key}; known here: {', '.join(known)}")


def _mapping(raw: object, where: str) -> dict[str, Any]:
    if not isinstance(raw, dict) or not all(isinstance(key, str) for key in raw):
        raise DataError(f"{where}: a mapping of names to values is needed")
    return raw


def _list(raw: object, where: str) -> list[Any]:
    if not isinstance(raw, list):
        raise DataError(f"{where}: a list is needed")
    return raw


def _text(raw: object, where: str) -> str:
    if not isinstance(raw, str):
        raise DataError(f"{where}: text is needed, got {raw!r}; put it in quotes")
    return raw


def _flag(raw: object, where: str) -> bool:
    if not isinstance(raw, bool):
        raise DataError(f"{where}: true or false is needed, got {raw!r}")
    return raw


def _whole(raw: object, where: str, *, least: int) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int) or raw < least:
        raise DataError(f"{where}: a whole number from {least} on is needed, got {raw!r}")
    return raw


def _percent(raw: object, where: str) -> float:
    if isinstance(raw, bool) or not isinstance(raw, (int, float)) or not 0 <= raw <= 100:
        raise DataError(f"{where}: a percentage between 0 and 100 is needed, got {raw!r}")
    return float(raw)


def _choice(raw: object, known: Sequence[str], where: str) -> str:
    if raw not in known:
        raise DataError(f"{where}: {raw!r} is not one of {', '.join(known)}")
    return str(raw)


def _main(study: str, key: str, seed: str, output: str) -> None:
    """Write one plan of a study; the Snakefile's `plan` rule."""
    load_study(Path(study)).plan(key, seed=int(seed)).save(output)


if __name__ == "__main__":
    _main(*sys.argv[1:])
