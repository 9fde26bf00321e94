"""The command `headprune claims`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from typer.testing import CliRunner

from headprune import PruningPlan
from headprune.cli import app
from headprune.report.changes import document
from headprune.report.render import json_values
from headprune.results.changes import Changes
from headprune.results.record import Record
from headprune.results.signature import signature
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
    assert " other claims without rows in these records: --all lists them" in run.err
    assert "not run here" in markdown and "not run here" not in run.out
    assert "at no cost in BLEU.” (Budhraja et al., EMNLP 2020, table 1): holds in" in run.out
    whole = headprune("claims", *(str(path) for path, _ in results), "--all")
    assert whole.out.strip() == markdown.strip()
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


def test_studies_of_one_name_are_told_apart_by_folders(translations: Make, tmp_path: Path) -> None:
    """They begin with different baselines; the correction is for the claims of both."""
    for value, study in ((30.0, "one"), (40.0, "two")):
        results = [
            *translations(value, value + 0.2, value + 0.1, kind="control", study=study),
            *translations(value + 1, value + 1.1, value + 1.2, percent=25, study=study),
        ]
        for path, record in results:
            replace(record, study="same").save(path)
    folders = [tmp_path / "one", tmp_path / "two"]
    run = headprune("claims", *folders, "--no-test")
    assert run.status == 1 and "same" not in run.out
    named = [f"--study={folder.name}={folder}" for folder in folders]
    run = headprune("claims", *named, "--no-test", "-o", tmp_path / "out")
    assert run.status == 0, run.err
    assert all(f"holds in {name} (remove)" in run.out for name in ("one", "two"))
    claims = json.loads((tmp_path / "out" / "claims.json").read_text())["claims"]
    tested = [claim["study"] for claim in claims if claim["p_holm"] is not None]
    assert sorted(tested) == ["one", "one", "two", "two"]  # 25% and the deviation
    run = headprune("claims")
    assert run.status == 2 and "give records, or folders with records" in run.err
    assert "write NAME=FOLDER" in headprune("claims", "--study", "one").err


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


def test_the_records_of_one_recovery_are_chosen(tmp_path: Path) -> None:
    """In a comparison, pruned models and controls of two trainings have the same rows."""
    plan = PruningPlan(kept={"ES": [(0, 1), (1,)]}, units={"ES": (2, 2)})
    full = PruningPlan.full({"ES": (2, 2)})
    values = {"finetune": 30.0, "distill[weight=0.5,temperature=2]": 31.0}
    for number, (recovery, value) in enumerate(values.items()):
        for kind, kept, method in (("control", full, "none"), ("pruned", plan, "random")):
            for seed in (1, 2, 3):
                name = None if recovery == "finetune" else recovery
                Record(
                    task="translation",
                    metrics={"bleu": value - (kind == "pruned") * number + seed / 10},
                    plan=kept,
                    kind=kind,
                    row=kind if kind == "control" else "random 25%",
                    requested_percent=25.0,
                    form="none" if kind == "control" else "remove",
                    seed=seed,
                    finetune="1ep",
                    signature=signature(
                        kept,
                        select=method,
                        seed=seed,
                        form="remove",
                        finetune="1ep",
                        data="x",
                        recovery=name,
                    ),
                ).save(tmp_path / "records" / str(number) / f"{kind}{seed}.json")
    runner = CliRunner()
    refused = runner.invoke(app, ["claims", str(tmp_path)])
    assert "after several recoveries: finetune, distill; choose one with" in str(refused.exception)
    first = str(tmp_path / "records" / "0")
    absent = runner.invoke(app, ["claims", first, "--recovery", "distill"])
    assert "there is no pruned model after it; there are finetune" in str(absent.exception)
    unknown = runner.invoke(app, ["claims", first, "--recovery", "refit"])
    assert unknown.exit_code == 2 and "'finetune', 'distill'" in unknown.output
    effects = {}
    for name in ("finetune", "distill"):
        out = tmp_path / name
        run = runner.invoke(app, ["claims", str(tmp_path), "--recovery", name, "-o", str(out)])
        assert run.exception is None, run.exception
        claims = json.loads((out / "claims.json").read_text())["claims"]
        by_name = {each["claim"]: each for each in claims}
        (part,) = by_name["25-percent-costs-nothing"]["parts"]
        assert part["n"] == 3
        effects[name] = round(part["effect"], 6)
    assert effects == {"finetune": 0.0, "distill": -1.0}


def test_a_damaged_record_in_a_folder_is_named(translations: Make, tmp_path: Path) -> None:
    (damaged, _), (path, _) = translations(30.0, 30.2, kind="control")
    damaged.write_text(damaged.read_text()[:100])
    run = CliRunner().invoke(app, ["claims", str(tmp_path), "--no-test"])
    assert run.exception is None, run.exception
    assert run.stderr.startswith(f"warning: {damaged}: not JSON")
    assert run.stderr.endswith("; left out\n")


def test_a_file_that_is_no_record(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("{}")
    run = headprune("claims", str(path))
    assert run.status == 1
    assert str(path) in run.err and "Traceback" not in run.err


def test_several_folders_are_one_study(translations: Make, tmp_path: Path) -> None:
    translations(30.0, 30.2, 30.1, kind="control")
    translations(31.0, 31.1, 31.2, percent=25)
    folders = [f"--study=one={tmp_path / 'made-up' / kind}" for kind in ("control", "pruned")]
    run = headprune("claims", *folders)
    assert run.status == 0, run.err
    assert "at no cost in BLEU.” (Budhraja et al., EMNLP 2020, table 1): holds in one" in run.out
