"""The sections of a study's YAML file: nested mappings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from headprune import DataError
from headprune.errors import UsageError
from headprune.results.signature import may_be_data
from studies.plugin import running, schedule
from studies.yaml_checks import (
    as_flags,
    as_mapping,
    as_text,
    as_whole,
    require_known,
    shown,
)

# Only the last and the best checkpoint are kept: the last to resume from, the best to report.
TRAIN_DEFAULTS: dict[str, Any] = {
    **running.WHOLE_DATA,
    "log-format": "simple",
    "log-interval": 50,
    "no-epoch-checkpoints": True,
    "num-workers": 0,
}
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
    # With any of these, the model would keep other units than the plan in its record.
    **dict.fromkeys(
        (
            *("plan", "head-plan", "head-seed"),
            *("es-heads", "ed-heads", "ds-heads", "ef-neurons", "df-neurons"),
            *("encoder-layers-kept", "decoder-layers-kept"),
            *("encoder-layers-to-keep", "decoder-layers-to-keep"),
        ),
        "`plans`",
    ),
    "head-form": "`form`",
    # The runner starts a process for each GPU, and shares the batches out among them.
    **dict.fromkeys(
        (
            *("distributed-world-size", "distributed-num-procs", "nprocs-per-node"),
            *("distributed-rank", "distributed-init-method", "distributed-port"),
            *("distributed-no-spawn", "device-id"),
        ),
        "`gpus`",
    ),
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
_ALL_RULES = "all"
_LANGUAGE = "[a-z]{2,3}(?:_[A-Za-z0-9]{2,8})?"
"""A language code as the scripts of data_prep take them, such as ``de`` or ``pt_BR``."""
_RESERVED_ARGS = {"out": "the run folder", "workers": "`resources`"}


@dataclass(frozen=True, kw_only=True)
class Data:
    """The key `data`: a corpus and how it is prepared.

    Attributes:
        name: the name of the corpus in signatures.
        pair: the languages, source and target.
        script: the script that prepares it, relative to the checkout.
        args: the arguments of the script.
    """

    name: str
    pair: tuple[str, str]
    script: str
    args: tuple[str, ...] = ()

    @classmethod
    def read(cls, raw: object) -> Data:
        """Check the section."""
        values = as_mapping(raw, "data")
        require_known(values, ("name", "pair", "script", "args"), where="data.")
        for key in ("name", "pair", "script"):
            if key not in values:
                raise DataError(f"missing key: data.{key}")
        pair = re.fullmatch(rf"({_LANGUAGE})-({_LANGUAGE})", str(values["pair"]))
        if not pair:
            raise DataError(
                f"data.pair: {shown(values['pair'])} is not source-target, such as en-de"
            )
        prepared = as_mapping(values.get("args", {}), "data.args").get("pair")
        if prepared is not None and prepared != pair[0]:
            raise DataError(
                f"data.args.pair: {shown(prepared)}, but data.pair is {pair[0]}; the references "
                "would be of another language than the translations"
            )
        name = as_text(values["name"], "data.name")
        if not may_be_data(name):
            raise DataError(f"data.name: {shown(name)}: signatures name it; leave out : and |")
        return cls(
            name=name,
            pair=(pair[1], pair[2]),
            script=as_text(values["script"], "data.script"),
            args=as_flags(values.get("args", {}), "data.args", reserved=_RESERVED_ARGS),
        )


@dataclass(frozen=True, kw_only=True)
class Training:
    """The keys `train` and `finetune`: the flags of fairseq-train.

    Attributes:
        flags: the flags on the command line. Numbers of updates that depend on the data are given
            as shares of the training; see ``fairseq_plugin/schedule.py``.
        length: the length in signatures: `30ep` (epochs) or `200up` (updates).
        distilled: whether the study's baseline is its teacher.
    """

    flags: tuple[str, ...]
    length: str
    distilled: bool = False

    @classmethod
    def read(cls, raw: object, key: str) -> Training:
        """Check the section of that key."""
        values = {**TRAIN_DEFAULTS, **as_mapping(raw, key)}
        distilled = _takes_teacher(values, key)
        flags = as_flags(values, key, reserved=RESERVED_FLAGS)
        if "max-epoch" in values and "max-update" in values:
            raise DataError(
                f"{key}: max-epoch and max-update are both given, and signatures name one length; "
                "remove one (in a study that extends another by a key without a value)"
            )
        if "max-epoch" in values:
            as_whole(values["max-epoch"], f"{key}.max-epoch", least=1)
        elif "max-update" not in values:
            raise DataError(f"{key}: max-epoch or max-update is needed, or it would never end")
        elif not _is_share(values["max-update"]):
            as_whole(values["max-update"], f"{key}.max-update", least=1)
        try:
            numbers = schedule.resolve(flags, updates_per_epoch=_not_known_yet)
        except _NotKnownYet:
            numbers = list(flags)
        except UsageError as problem:
            raise DataError(f"{key}.{str(problem).removeprefix('--')}") from None
        length = schedule.length_name(flags)
        return cls(flags=tuple(numbers), length=length, distilled=distilled)


_TEACHER = "distill-from"


def _takes_teacher(values: dict[str, Any], key: str) -> bool:
    """Take the teacher out of a training's flags: its path is known when the training starts.

    Raises:
        DataError: a teacher other than the baseline, or a criterion that does not go with it.
    """
    given = values.pop(_TEACHER, None)
    distils = str(values.get("criterion", "")).endswith("_with_distillation")
    if given is None and not distils:
        return False
    if key != "finetune":
        raise DataError(f"{key}: the baseline has no teacher; distillation goes with `finetune`")
    if given != "baseline":
        raise DataError(f"{key}.{_TEACHER}: {shown(given)}; give baseline, the unpruned model")
    if not distils:
        raise DataError(
            f"{key}.{_TEACHER}: give `criterion: label_smoothed_cross_entropy_with_distillation` "
            "with it"
        )
    return True


class _NotKnownYet(Exception):
    """The number of updates is known once the data are prepared."""


def _not_known_yet() -> int:
    raise _NotKnownYet


def _is_share(value: object) -> bool:
    return isinstance(value, str) and schedule.has_shares(["--max-update", value])


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The resources that a job asks a scheduler for.

    Attributes:
        threads: the number of CPU threads.
        mem_mb: memory in MiB.
        runtime: the limit of the run time in minutes.
        gpu: the number of GPUs.
    """

    threads: int
    mem_mb: int
    runtime: int
    gpu: int = 0

    @property
    def besides_threads(self) -> dict[str, int]:
        """All resources but the threads, by their names in snakemake; a GPU only if requested."""
        values = asdict(self)
        del values["threads"]
        return {name: value for name, value in values.items() if value}


def read_resources(raw: object, *, defaults: Mapping[str, Resources]) -> dict[str, Resources]:
    """Read the key `resources`: the resources of each rule, with defaults for missing values.

    Values under `all` hold for every rule that does not give its own.
    """
    given = as_mapping(raw, "resources")
    require_known(given, (_ALL_RULES, *defaults), where="resources.")
    numbers = {rule: _resource_numbers(rule, values) for rule, values in given.items()}
    of_all_rules = numbers.pop(_ALL_RULES, {})
    return {
        rule: replace(resources, **{**of_all_rules, **numbers.get(rule, {})})
        for rule, resources in defaults.items()
    }


def _resource_numbers(rule: str, values: object) -> dict[str, int]:
    """The checked values of one rule's resources."""
    where = f"resources.{rule}"
    changes = as_mapping(values, where)
    require_known(changes, tuple(field.name for field in fields(Resources)), where=f"{where}.")
    return {
        key: as_whole(value, f"{where}.{key}", least=0 if key == "gpu" else 1)
        for key, value in changes.items()
    }
