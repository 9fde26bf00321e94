"""The task of a study that `headprune new-study --model` writes."""

from __future__ import annotations

import re

from headprune.backends import Given
from headprune.errors import UsageError
from headprune.new_labelled_study import LabelledTask
from hf_plugin.glue.tasks import TASKS
from hf_plugin.loading import read_config
from hf_plugin.places import place, reporting
from hf_plugin.tasks.given import data_given
from hf_plugin.tasks.own import OwnData
from hf_plugin.tasks.task import require_dev


def study_task(
    model: str, *, name: str | None, metric: str | None, default_name: str, given: Given
) -> LabelledTask:
    """Describe a task; the model and all local files are read, so that mistakes show at once.

    Args:
        model, name, metric, default_name, given: see ``DescribesTasks.describe_task``.

    Raises:
        UsageError: options that are missing or contradict each other.
        DataError: data or a model that cannot be read.
    """
    data = data_given(given, model=model, untrained=True, metric=metric)
    if not isinstance(data, OwnData):
        if name is not None:
            raise UsageError(f"--name {name}: goes with --train; a task of GLUE has its name")
        with reporting(f"{model}: cannot read the model"):
            read_config(place(model))
        # What the hub has is read when the study runs.
        folder = data.data_dir
        sizes = {} if folder is None else {name: len(data.load(name)) for name in data.splits}
        return LabelledTask(
            name=data.task.name,
            options={},
            data_dir=None if folder is None else folder.absolute(),
            examples=sizes.get("train"),
        )
    require_dev(data)
    label = data.task.label or default_name
    chosen = re.sub(r"[^A-Za-z0-9._-]", "_", label) if name is None else name
    if chosen in TASKS or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", chosen):
        raise UsageError(
            f"--name {chosen}: give a name of letters, digits, '.', '_' and '-' that is no task of "
            "GLUE"
        )
    options = {option.replace("_", "-"): str(value) for option, value in given.items()}
    if metric is not None:
        options["metric"] = metric
    return LabelledTask(name=chosen, options=options, examples=len(data.load("train")))
