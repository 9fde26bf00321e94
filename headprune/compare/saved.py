"""The outcome of a comparison, read from its folder."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headprune.compare.comparison import Comparison
from headprune.compare.correlations import Correlation
from headprune.compare.findings import findings
from headprune.compare.pairs import PairTest
from headprune.compare.records import Outcomes
from headprune.compare.report import Report
from headprune.compare.rows import Row
from headprune.errors import DataError
from headprune.json_files import json_object, known_values, read_limited
from headprune.plan import PruningPlan
from headprune.recovery.kinds import Recovery
from headprune.results.environment import Environments
from headprune.results.signature import fields_of
from headprune.results.tasks import TRANSLATION
from headprune.scores import HeadScores
from headprune.speed.turns import Quartiles


def load_report(folder: Path) -> tuple[str, Report]:
    """Read compare.json and the scores of a comparison; returns its title and report.

    In folders of older versions, the names of the data and of the fine-tuning and the signatures of
    the scores are read from compare.md.

    Raises:
        DataError: a file cannot be read, or is not of a comparison.
    """
    path = folder / "compare.json"
    content = json_object(path)
    try:
        return str(content["title"]), _report(folder, content)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as problem:
        raise DataError(f"{path}: not the outcome of a comparison ({problem!r})") from None


def _report(folder: Path, content: Mapping[str, Any]) -> Report:
    values = content if "score_signatures" in content else _older_values(folder, content)
    signatures = map(fields_of, values["score_signatures"])
    plan = values.get("plan")
    # Older versions had one recovery in a comparison.
    names = content.get("recoveries") or [content.get("recovery", Recovery.FINETUNE)]
    recoveries = tuple(map(Recovery, names))
    comparison = Comparison(
        task=values["task"],
        model=values.get("model"),
        plan=None if plan is None else PruningPlan.from_json(json.dumps(plan), source="plan"),
        metric=content["metric"],
        metric_signature=values.get("metric_signature"),
        fingerprint=values.get("fingerprint"),
        data_name=values["data_name"],
        finetune_name=values["finetune_name"],
        at_least=values.get("at_least"),
        components=_components(content),
        measure=content.get("measure", "units"),
        timed_job=content.get("timed_job"),
        verify=int(content.get("verify", 0)),
        positions=content.get("positions"),
        base=content["base"],
        scores={fields["score"]: _score(folder, fields) for fields in signatures},
        rows=tuple(_row(row, folder=folder, recovery=recoveries[0]) for row in content["rows"]),
        speedups=_speedups(content),
        timed_all_plans=bool(content.get("timed_all_plans", False)),
        costs=content.get("costs", {}),
        recovery_seconds=content.get("recovery_seconds", {}),
        pairs=tuple(_pair(each, folder=folder) for each in content.get("pairs", ())),
        settings=content["settings"],
        constant=content.get("constant"),
        recoveries=recoveries,
        environments=_environments(content, folder=folder),
    )
    correlations = {
        name: Correlation(
            _number(each["spearman"]),
            _number(each["interval"][0]),
            _number(each["interval"][1]),
            each["heads"],
        )
        for name, each in content["correlations"].items()
    }
    among = [[_number(value) for value in row.values()] for row in content["among"].values()]
    return Report(
        comparison=comparison,
        correlations=correlations,
        among=(list(content["among"]), among),
        findings=findings(
            Outcomes.of(comparison),
            correlations,
            metric=comparison.metric,
            measure=comparison.measure,
        ),
    )


def _speedups(content: Mapping[str, Any]) -> dict[str, dict[float, Quartiles]]:
    """The speed-ups by method; older versions took the time of random plans alone."""
    of_random = content["speedups"]
    by_method = content.get("speedups_by_method") or ({"random": of_random} if of_random else {})
    return {
        method: {float(percent): (v[0], v[1], v[2]) for percent, v in speedups.items()}
        for method, speedups in by_method.items()
    }


def _row(values: Mapping[str, Any], *, folder: Path, recovery: Recovery) -> Row:
    """A row; those of older versions do not name their recovery."""
    row = Row(**known_values(Row, values, source=f"{folder / 'compare.json'}: rows"))
    is_older = row.after is not None and row.recovery is None
    return replace(row, recovery=str(recovery)) if is_older else row


def _pair(values: Mapping[str, Any], *, folder: Path) -> PairTest:
    return PairTest.from_json(values, source=f"{folder / 'compare.json'}: pairs")


def _environments(content: Mapping[str, Any], *, folder: Path) -> Environments | None:
    """Read the environments of the measurements; None in folders of older versions."""
    values = content.get("environments")
    if values is None:
        return None
    source = f"{folder / 'compare.json'}: environments"
    return Environments(**known_values(Environments, values, source=source))


def _components(content: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The components that were pruned; None for all attention."""
    component = content["component"]
    names = content.get("components") or ([] if component is None else [component])
    return tuple(names) or None


def _number(value: float | None) -> float:
    """NaN for a correlation that could not be computed, which JSON does not have."""
    return float("nan") if value is None else value


def _older_values(folder: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """The values that older versions wrote only to compare.md, in the signatures at its end."""
    lines = read_limited(folder / "compare.md").split("```")[1].strip().splitlines()
    rows = [fields for fields in map(fields_of, lines) if "plan" in fields]
    finetune_names = (fields["finetune"] for fields in rows if fields["finetune"] != "none")
    start = f"{content['metric']}|"
    of_metric = (line.removeprefix(start) for line in lines if line.startswith(start))
    return {
        # Settings of classifiers name their task.
        "task": content["settings"].get("task", TRANSLATION),
        "data_name": rows[0]["data"],
        "finetune_name": next(finetune_names, "none"),
        "metric_signature": next(of_metric, None),
        "score_signatures": [line for line in lines if line.startswith("score:")],
    }


def _score(folder: Path, signature: Mapping[str, str]) -> HeadScores:
    """The score of a signature; without its numbers where its file is not in the folder."""
    path = folder / "scores" / f"{signature['score']}.json"
    if path.is_file():
        # The tables may have an older name of the score than the file.
        return replace(HeadScores.load(path), name=signature["score"])
    weights = re.fullmatch("[0-9a-f]{12}", signature["weights"])
    return HeadScores(
        name=signature["score"],
        values={},
        fingerprint=weights[0] if weights else "",
        data="" if signature["data"] == "none" else signature["data"],
        settings={
            name: value
            for name, value in signature.items()
            if name not in ("score", "data", "weights", "headprune")
        },
    )
