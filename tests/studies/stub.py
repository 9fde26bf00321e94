"""Stands in for a study's programs: writes the files that they write, and records its arguments.

A test copies it over `studies/fairseq_job.py`, `studies/calibrate.py`,
`headprune/cli/__init__.py` and a script of `data_prep`. The training whose label is
in the environment's FAIL fails.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

_TABLES = ("md", "csv", "json", "png", "svg")
_ONE = dict.fromkeys(("translation", "sst2", "cola"), 1)
_CALIBRATION = {"seconds_per_update": _ONE, "updates_per_epoch": _ONE, "model_bytes": 1}


def main() -> None:
    """Do as one of the programs would."""
    arguments = sys.argv[1:]
    if Path(sys.argv[0]).stem == "calibrate":
        arguments = ["calibrate", *arguments]
    with open(os.environ["RECORD"], "a", encoding="utf-8") as record:
        record.write(json.dumps(arguments) + "\n")

    def value(name: str) -> Path:
        return Path(arguments[arguments.index(name) + 1])

    if "--out" in arguments:
        print("note: waiting for another preparation")
        written = [value("--out") / "prep.json", value("--out") / "raw" / "test.de"]
    elif arguments[0] == "train" and value("--label").name == os.environ.get("FAIL"):
        value("--log").write_text("epoch 6\nloss became NaN in epoch 7\n", encoding="utf-8")
        sys.exit(1)
    elif arguments[0] in ("train", "copy"):
        written = [value("--model"), value("--model").with_suffix(".json")]
        written += [value("--closed-plan")] if "--closed-plan" in arguments else []
    elif arguments[0] in ("generate", "calibrate"):
        written = [value("--output")]
    elif arguments[0] == "bleu":
        written = [value("--output"), value("--output").with_suffix(".hyp.txt")]
    elif arguments[0] in ("glue", "finetune"):
        names = ("result.json", "predictions.tsv", "model/config.json")
        written = [value("--output") / name for name in names]
    else:
        name = "changes" if arguments[0] == "changes" else "table"
        written = [value("--output-dir") / f"{name}.{suffix}" for suffix in _TABLES]
        written += [value("--output-dir") / f"figure.{suffix}" for suffix in ("png", "svg")]
        written += [value("--output-dir") / f"report.{suffix}" for suffix in ("html", "md")]
    content = _CALIBRATION if arguments[0] == "calibrate" else {}
    for path in written:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content), encoding="utf-8")


if __name__ == "__main__":
    main()
