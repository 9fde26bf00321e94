"""The behaviour that ``headprune.model.PrunableModel`` promises, checked for a backend's model."""

from __future__ import annotations

from pathlib import Path

import headprune
from headprune import PruningPlan, select
from headprune.model import PrunableModel


def check_prunable_model(path: Path, folder: Path) -> None:
    """Check the model of a path; what it writes goes to ``folder``."""
    whole = headprune.open_model(path)
    assert isinstance(whole, PrunableModel)
    assert whole.path == path and whole.plan.is_full
    assert set(whole.plan.units) < set(whole.shape)
    assert whole.parameters == whole.unpruned_parameters
    for components in (list(whole.plan.units), ["EF"], ["EL"]):
        shape = {name: whole.shape[name] for name in components}
        plan = select.at_random(shape, seed=1, percent=50)
        pruned = whole.prune(plan)
        assert isinstance(pruned, PrunableModel)
        _assert_same_model(pruned, plan, whole)
        saved = folder / f"{components[0]}.pt"
        pruned.save(saved)
        read = headprune.open_model(saved)
        _assert_same_model(read, plan, whole)
        assert read.fingerprint == pruned.fingerprint != whole.fingerprint
        further = select.at_random(shape, seed=2, percent=75, within=plan)
        assert pruned.prune(further).fingerprint == read.prune(further).fingerprint
        assert pruned.plan == read.plan  # pruning again has not changed it
    whole.save(folder / "copy.pt")
    copied = headprune.open_model(folder / "copy.pt")
    assert copied.plan.is_full and copied.fingerprint == whole.fingerprint


def _assert_same_model(pruned: PrunableModel, plan: PruningPlan, whole: PrunableModel) -> None:
    assert pruned.plan == plan.normalised(whole.shape)
    assert pruned.shape == whole.shape and pruned.sizes == whole.sizes
    assert pruned.form == "remove"
    assert pruned.unpruned_parameters == whole.parameters > pruned.parameters
    assert whole.parameters_with(plan) == pruned.parameters == pruned.parameters_with(plan)
