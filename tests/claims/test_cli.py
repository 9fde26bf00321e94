"""The command `headprune claims`."""

from __future__ import annotations

import json
from pathlib import Path

from headprune.report.changes import Changes, document
from headprune.report.render import json_values
from tests.claims.conftest import Make
from tests.command import headprune


def test_a_study_in_progress(translations: Make, tmp_path: Path) -> None:
    results = [
        *translations(30.0, 30.2, 30.1, kind="control"),
        *translations(31.0, 31.1, 31.2, percent=25),
        *translations(29.0, percent=60),
    ]
    folder = tmp_path / "out"
    run = headprune("claims", *(str(path) for path, _ in results), "-o", str(folder))
    assert run.status == 0, run.err
    markdown = (folder / "claims.md").read_text()
    assert run.out.strip() == markdown.strip()
    assert "at no cost in BLEU.” (Budhraja et al., EMNLP 2020, table 1): holds in" in markdown
    values = json.loads((folder / "claims.json").read_text())
    by_name = {claim["claim"]: claim for claim in values["claims"]}
    held = by_name["25-percent-costs-nothing"]
    assert held["outcome"] == "holds" and held["region"] == [-0.15, None]
    assert held["parts"][0]["n"] == 3 and len(held["parts"][0]["interval"]) == 2
    single = by_name["60-percent-costs-0.15"]
    assert single["outcome"] == "these runs cannot tell" and single["p_holm"] is None
    missing = by_name["no-preference-by-location"]
    assert missing["outcome"] == "not run here" and missing["command"]
    assert (folder / "claims.csv").read_text().startswith("claim,sentence,paper,")


def test_changes_of_heads(translations: Make, tmp_path: Path) -> None:
    (path, _), *_ = translations(30.0, kind="control")
    changes = tmp_path / "changes.json"
    layers = [[1.0, 1.01, 0.99], [2.0, 2.01, 1.99]]
    model = Changes(label="50%", components={"ES": layers})
    changes.write_text(json_values.render(document([model], title="changes")))
    run = headprune("claims", path, "--changes", changes)
    assert run.status == 0, run.err
    assert "differ by less than 10%.” (Budhraja et al., EMNLP 2020, figure 2): does not hold" in (
        run.out
    )
    changes.write_text("{}")
    run = headprune("claims", path, "--changes", changes)
    assert run.status == 1 and f"{changes}: not changes of heads" in run.err


def test_a_file_that_is_no_record(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("{}")
    run = headprune("claims", str(path))
    assert run.status == 1
    assert str(path) in run.err and "Traceback" not in run.err
