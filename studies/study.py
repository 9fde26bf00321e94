"""A translation study's YAML file: what may stand in it, what is filled in, what is refused.

A study trains one unpruned baseline, prunes it in several ways, fine-tunes each pruned model once
a seed, scores everything on the test set and reports. `load_study` reads the file that says which.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headprune import DataError, HeadPlan
from headprune.report.paper import paper_table
from studies.plans import CONTROL, Row, parse_rows, parse_shape
from studies.yaml_checks import (
    as_choice,
    as_flag,
    as_flags,
    as_mapping,
    as_paper,
    as_resources,
    as_seed,
    as_seeds,
    as_text,
    as_title,
    as_whole,
    fill_in,
    read_yaml,
    require_known,
    shown,
    study_name,
)

PRECISIONS = ("fp32", "fp16", "bf16")
_PLUGIN = "transformer_headpruned"
FORMS = ("remove", "mask")

# Everything that a study may leave out, in one place.
DEFAULTS: dict[str, Any] = {
    "runner": "translation",
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


def load_study(path: Path) -> Study:
    """Read and check one study.

    Raises DataError, with the file's name and the key, for whatever fairseq or snakemake would
    only trip over after hours.
    """
    raw = read_yaml(path)
    try:
        return _study(raw)
    except DataError as problem:
        raise DataError(f"{path}: {problem}") from None


def _study(raw: object) -> Study:
    values = fill_in(raw, required=REQUIRED, defaults=DEFAULTS)
    data = as_mapping(values["data"], "data")
    require_known(data, ("name", "pair", "script", "args"), where="data.")
    for key in ("name", "pair", "script"):
        if key not in data:
            raise DataError(f"missing key: data.{key}")

    train = as_mapping(values["train"], "train")
    train_flags = as_flags({**TRAIN_DEFAULTS, **train}, "train", reserved=RESERVED_FLAGS)
    _length(train, "train")
    finetune = as_mapping(values["finetune"], "finetune")
    shape = parse_shape(values["shape"])
    seeds = as_seeds(values["seeds"])
    rows = parse_rows(values["plans"], shape=shape, seeds=seeds)
    control = as_flag(values["control"], "control")
    if control:
        rows = (CONTROL, *rows)
    return Study(
        name=study_name(values["name"]),
        description=as_title(values["description"], "description"),
        data_name=as_text(data["name"], "data.name"),
        pair=_pair(data["pair"]),
        data_script=as_text(data["script"], "data.script"),
        data_args=as_flags(data.get("args", {}), "data.args", reserved=RESERVED_DATA_ARGS),
        arch=_arch(values["arch"]),
        form=as_choice(values["form"], FORMS, "form"),
        precision=as_choice(values["precision"], PRECISIONS, "precision"),
        model_flags=as_flags(values["model"], "model", reserved=RESERVED_FLAGS),
        train_flags=train_flags,
        finetune_flags=as_flags(
            {**TRAIN_DEFAULTS, **finetune}, "finetune", reserved=RESERVED_FLAGS
        ),
        generate_flags=as_flags(
            {**GENERATE_DEFAULTS, **as_mapping(values["generate"], "generate")},
            "generate",
            reserved=RESERVED_FLAGS,
        ),
        finetune_length=_length(finetune, "finetune"),
        shape=shape,
        rows=rows,
        seeds=seeds,
        baseline_seed=as_seed(values["baseline_seed"], "baseline_seed"),
        control=control,
        before_finetune=as_flag(values["before_finetune"], "before_finetune"),
        paper=as_paper(values["paper"], table=paper_table),
        resources=as_resources(values["resources"], defaults=RESOURCE_DEFAULTS),
    )


def _length(training: Mapping[str, Any], key: str) -> str:
    """How long a training goes on, as it stands in signatures: `30ep` or `200up` (updates)."""
    if "max-epoch" in training:
        return f"{as_whole(training['max-epoch'], f'{key}.max-epoch', least=1)}ep"
    if "max-update" in training:
        return f"{as_whole(training['max-update'], f'{key}.max-update', least=1)}up"
    raise DataError(f"{key}: max-epoch or max-update is needed, or it would never end")


def _arch(value: Any) -> str:
    arch = as_text(value, "arch")
    if not arch.startswith(_PLUGIN):
        raise DataError(f"arch: {arch} is none of the plugin's ({_PLUGIN}, {_PLUGIN}_small, ...)")
    return arch


def _pair(raw: object) -> tuple[str, str]:
    match = re.fullmatch(r"([a-z]{2,3})-([a-z]{2,3})", str(raw))
    if not match:
        raise DataError(f"data.pair: {shown(raw)} is not source-target, such as en-de")
    return match[1], match[2]
