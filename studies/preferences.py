"""Compare the preferences of tables 2 and 3 after a short and a long fine-tuning.

    python -m studies.preferences SHORT/table.json LONG/table.json

Both studies have the same baseline, rows and seeds, so that a seed prunes the same heads in both. A
preference is the BLEU of one row less the mean of the others of its pair or triple. For each table
of the paper the mean over its pairs or triples is taken seed by seed, and the change from the short
to the long fine-tuning is tested by a t-test over the seeds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from scipy.stats import ttest_1samp

from headprune.errors import DataError, UsageError, exit_status

Values = Mapping[str, Mapping[int, float]]
"""The BLEU of each row by seed."""

PREFERENCES: Mapping[str, Sequence[tuple[str, ...]]] = {
    "important layers keep more (table 2, 50 and 75%)": (
        ("ES=666222 ED=222666 DS=666222", "ES=222666 ED=666222 DS=222666"),
        ("ES=333111 ED=111333 DS=333111", "ES=111333 ED=333111 DS=111333"),
    ),
    "encoder-decoder attention pruned most (table 3, 48 and 75%)": (
        ("ES=31 ED=14 DS=30", "ES=14 ED=31 DS=30", "ES=30 ED=31 DS=14"),
        ("ES=13 ED=8 DS=15", "ES=8 ED=13 DS=15", "ES=15 ED=13 DS=8"),
    ),
}
"""The rows of each pair or triple, the preferred one first."""


def values_in(path: Path) -> Values:
    """The values of the pruned models in a file table.json.

    Raises:
        DataError: the file cannot be read, or is no table of a translation study.
    """
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        return {
            row["label"]: dict(zip(row["seeds"], row["values"], strict=True))
            for row in rows
            if row["kind"] == "pruned"
        }
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise DataError(f"{path}: not the table.json of a study ({problem})") from None


def preference(values: Values, groups: Sequence[tuple[str, ...]]) -> dict[int, float]:
    """The value of the first row less the mean of the others, by seed, mean over the groups.

    Raises:
        DataError: a row is missing, or its seeds are others than those of the first one.
    """
    missing = [label for group in groups for label in group if label not in values]
    if missing:
        raise DataError(f"no row {missing[0]} in the table")
    seeds = values[groups[0][0]].keys()
    for label in (label for group in groups for label in group):
        if values[label].keys() != seeds:
            raise DataError(f"{label}: other seeds than those of {groups[0][0]}")
    return {
        seed: fmean(
            values[first][seed] - fmean(values[other][seed] for other in others)
            for first, *others in groups
        )
        for seed in seeds
    }


def line(name: str, short: Mapping[int, float], long: Mapping[int, float]) -> str:
    """The row of a preference in the printed table.

    Raises:
        DataError: the tables have other seeds, or these too few or equal values for a test.
    """
    if short.keys() != long.keys():
        raise DataError(f"{name}: the two tables have other seeds")
    changes = [long[seed] - short[seed] for seed in short]
    if len(changes) < 2 or max(changes) - min(changes) < 1e-9:
        raise DataError(f"{name}: a test needs two seeds or more, with different changes")
    test = ttest_1samp(changes, 0)
    low, high = test.confidence_interval()
    shown = ", ".join(f"{change:+.2f}" for change in changes)
    return (
        f"| {name} | {fmean(short.values()):+.2f} | {fmean(long.values()):+.2f} "
        f"| {fmean(changes):+.2f} ({low:.2f} to {high:.2f}) | {shown} | {test.pvalue:.4f} |"
    )


def main(arguments: Sequence[str]) -> None:
    """Print the table."""
    if len(arguments) != 2:
        raise UsageError("give two files: the table.json of the short and of the long fine-tuning")
    short, long = (values_in(Path(path)) for path in arguments)
    print("| preference | short | long | change (95% interval) | by seed | p |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, groups in PREFERENCES.items():
        print(line(name, preference(short, groups), preference(long, groups)))


if __name__ == "__main__":
    sys.exit(exit_status(main, sys.argv[1:]))
