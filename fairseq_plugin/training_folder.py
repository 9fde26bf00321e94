"""The folder of a training: what identifies the training, its checkpoints, and its result."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairseq_plugin import checkpoint_file
from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.running import NOTE
from fairseq_plugin.schedule import flag_value
from headprune.errors import DataError
from headprune.files import atomic_path, write_text_atomically
from headprune.plan import PruningPlan
from headprune.recovery.distillation import TEACHER, Distillation
from headprune.results.curves import BEGINNING_ANEW, CURVE, read_log
from headprune.results.environment import processor_name, versions_of

FAIRSEQ_PACKAGES = "fairseq", "fairseq-fixed"
"""The packages that provide fairseq; one of them is installed."""

# A training that only runs for longer is the same training: it resumes. See `forget_if_longer`.
LENGTH_FLAGS = ("--max-epoch", "--max-update")
# The plugin is the same wherever it lies, and the other files are identified by their content.
PATH_FLAGS = ("--user-dir", "--plan", "--head-plan", "--finetune-from-model", "--distill-from")


def identity(
    flags: Sequence[str],
    *,
    data: Path,
    depends: Sequence[Path],
    precision: str,
    test_sets: bool = False,
) -> str:
    """A text that identifies a training, independent of its length and the paths of its files.

    Args:
        flags, data, depends: see ``running.train``.
        precision: see ``running.Job``.
        test_sets: include the test sets, which no training reads, as older versions did.

    Raises:
        DataError: a file cannot be read.
    """
    left_out = {*LENGTH_FLAGS, *PATH_FLAGS}
    kept = [f for f, before in zip(flags, ["", *flags], strict=False) if before not in left_out]
    files = [
        path
        for path in data.glob("*")
        if path.suffix in (".bin", ".idx", ".txt")
        and (test_sets or not path.name.startswith("test"))
    ]
    digests: list[str] = []
    for path in [*sorted(files), *depends]:
        try:
            with path.open("rb") as file:
                digests.append(hashlib.file_digest(file, "sha256").hexdigest())
        except OSError as problem:
            raise DataError(f"{path}: cannot be read: {problem.strerror}") from problem
    return json.dumps({"flags": kept, "precision": precision, "sha256": digests}, indent=1)


def forget_unless_same(
    save_dir: Path, mark: str, *, adopt: bool, older_mark: Callable[[], str] | None = None
) -> None:
    """Remove the checkpoints of a training with other flags, data or files.

    Args:
        mark: the result of ``identity``.
        adopt: see ``running.train``.
        older_mark: the mark that older versions wrote of the same training.
    """
    path = save_dir / "training.json"
    known = path.read_text(encoding="utf-8") if path.is_file() else None
    if known == mark:
        return
    same = adopt if known is None else older_mark is not None and known == older_mark()
    if not same:
        _forget(save_dir, "its flags, data or plan have changed since it began")
    write_text_atomically(path, mark)


def forget_if_longer(save_dir: Path, flags: Sequence[str]) -> None:
    """Remove the checkpoints of a training that has run for longer than its flags now say.

    The best of them may be one that the shorter training never reaches.

    Raises:
        DataError: the last checkpoint cannot be read.
    """
    last = save_dir / "checkpoint_last.pt"
    if not last.exists():
        return
    progress = _progress(checkpoint_file.read(last))
    for flag, done in zip(LENGTH_FLAGS, progress, strict=True):
        limit = flag_value(flags, flag)
        # fairseq takes 0 for no limit, and refuses what is no number.
        if limit is not None and limit.isdecimal() and 0 < int(limit) < done:
            unit = flag.removeprefix("--max-") + "s" * (done != 1)
            _forget(save_dir, f"it has run for {done} {unit}, more than {flag} {limit}")
            return


def _forget(save_dir: Path, reason: str) -> None:
    """Remove all checkpoints, and tell why if there are any."""
    checkpoints = list(save_dir.glob("checkpoint*.pt"))
    if checkpoints:
        print(f"{NOTE}{reason}; {BEGINNING_ANEW}")
    for checkpoint in checkpoints:
        checkpoint.unlink()


def _progress(state: Mapping[str, Any]) -> tuple[int, int]:
    """The epochs, of which the last may not be complete, and the updates of a checkpoint."""
    iterator = state["extra_state"]["train_iterator"]
    epochs = int(iterator["epoch"]) - int(iterator["iterations_in_epoch"] == 0)
    return epochs, int(state["optimizer_history"][-1]["num_updates"])


def mend_last_checkpoint(save_dir: Path) -> None:
    """Replace a checkpoint_last.pt that was truncated by a kill.

    fairseq renames the first file of a save into place, but copies it to the second: that copy
    can be cut short, and then the best checkpoint is the file it was being copied from.
    """
    last, best = save_dir / "checkpoint_last.pt", save_dir / "checkpoint_best.pt"
    if not last.exists() or zipfile.is_zipfile(last):
        return
    if zipfile.is_zipfile(best):
        with atomic_path(last) as temporary:
            shutil.copyfile(best, temporary)
    else:
        last.unlink()


def finish(save_dir: Path, model: Path, *, resumed: bool, closed_plan: Path | None = None) -> None:
    """Write the best model of a finished training, and the facts of the training.

    Args:
        save_dir: the folder of the training.
        model: the file to write; the facts go to a `.json` beside it.
        resumed: whether the training went on after an interruption.
        closed_plan: close the learned gates of the model, and write the plan of what is kept here.

    Raises:
        DataError: there is no checkpoint.
        UsageError: gates are to be closed, and the model has none.
    """
    places = [save_dir / f"checkpoint_{name}.pt" for name in ("best", "last")]
    path = next((path for path in places if path.exists()), None)
    if path is None:
        raise DataError(f"{save_dir}: fairseq-train left no checkpoint")
    best = Checkpoint.load(path)
    epochs, updates = _progress(best.state)
    extra = best.state["extra_state"]
    best.state["last_optimizer_state"] = None
    if closed_plan is not None:
        best = best.with_gates_closed()
        _with_seed(best.plan, best).save(closed_plan)
    best.save(model)
    facts: dict[str, Any] = {
        "parameters": best.parameters,
        "best_updates": updates,
        "best_epoch": epochs,
        # The older name of the value, which is of whichever metric chose the checkpoint.
        **({"best_valid_loss": float(extra["best"])} if "best" in extra else {}),
        **(_metric_facts(best) if "best" in extra else {}),
        "resumed": resumed,
        # The same training gives another model on another processor.
        "device": processor_name(),
        "versions": versions_of("torch", *FAIRSEQ_PACKAGES),
    }
    facts |= _teacher_facts(best)
    log = save_dir / "train.log"
    if log.is_file() and (curve := read_log(log)):
        facts[CURVE] = curve.as_json()
    write_text_atomically(model.with_suffix(".json"), json.dumps(facts, indent=1) + "\n")


def _options_in(trained: Checkpoint, section: str) -> Mapping[str, Any]:
    """The options of a training in a section of its configuration; empty without it."""
    cfg = trained.state.get("cfg")
    options = cfg.get(section) if isinstance(cfg, dict) else None
    return options if isinstance(options, dict) else {}


def _with_seed(plan: PruningPlan, trained: Checkpoint) -> PruningPlan:
    """The plan, with the seed of the training that it comes from."""
    seed = _options_in(trained, "common").get("seed")
    if plan.origin is None or seed is None:
        return plan
    return plan.with_origin(replace(plan.origin, seed=int(seed)))


def _metric_facts(trained: Checkpoint) -> dict[str, str]:
    """The metric of the validation that chose the best checkpoint; empty where it is not known."""
    metric = _options_in(trained, "checkpoint").get("best_checkpoint_metric")
    return {"best_metric": str(metric)} if metric else {}


def _teacher_facts(trained: Checkpoint) -> dict[str, Any]:
    """The weights of a distillation and the fingerprint of its teacher; empty without one."""
    criterion = _options_in(trained, "criterion")
    if not criterion.get("distill_from"):
        return {}
    teacher = criterion["distill_from"]
    chosen = Distillation.of_settings(criterion) or Distillation()
    return chosen.as_settings() | {TEACHER: Checkpoint.load(Path(teacher)).fingerprint}
