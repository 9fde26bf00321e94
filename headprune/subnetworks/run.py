"""Good, random and bad sub-networks of several fine-tunings of one task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from headprune.compare.claimed_folder import claim
from headprune.compare.competition import Competition, component_settings
from headprune.compare.measured import Measured
from headprune.compare.records import RECORDS, files_beside, record_of
from headprune.compare.store import OUTPUTS, Choice, Store
from headprune.cost import known_flops
from headprune.errors import UsageError
from headprune.model import architecture_of
from headprune.origin import Origin
from headprune.plan import PruningPlan, validate_shape
from headprune.recovery.kinds import Recovery
from headprune.results.marks import CONSTANT, RESUMED
from headprune.results.record import Record
from headprune.subnetworks.choices import FULL, method_name, subnetworks
from headprune.subnetworks.elements import elements_of, plan_of_elements, require_elements
from headprune.subnetworks.search import Rules, Search, find_survivors
from headprune.task_model import TaskModel

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Network:
    """A sub-network of one model, or the model itself.

    Attributes:
        seed: the number of the model, from 1.
        name: ``full``, ``good``, ``random`` or ``bad``.
        elements: its heads and MLPs.
        before: the record of its measurement right after pruning.
        after: that after fine-tuning; None without one.
    """

    seed: int
    name: str
    elements: PruningPlan
    before: Record
    after: Record | None


@dataclass(frozen=True, kw_only=True)
class Subnetworks:
    """The sub-networks of several models.

    Attributes:
        metric: the name of the metric.
        rules: the rules of the search.
        models: the models, in the order of their numbers.
        searches: for each model, its search.
        networks: the sub-networks of all models.
        restarted_from: the model whose weights fine-tunings after pruning begin with; None if they
            continue from the weights of the pruned models.
    """

    metric: str
    rules: Rules
    models: Sequence[str]
    searches: Sequence[Search]
    networks: Sequence[Network]
    restarted_from: str | None = None

    @property
    def pool(self) -> PruningPlan:
        """The elements that all models had before the search."""
        return self.searches[0].attempts[0].elements

    @property
    def survivors(self) -> list[PruningPlan]:
        """The elements that survived in each model."""
        return [search.survivors for search in self.searches]


def find_subnetworks(
    models: Sequence[TaskModel],
    *,
    rules: Rules,
    folder: Path,
    components: Sequence[str] | None = None,
    restart_from: Path | None = None,
    say: Say = lambda _: None,
) -> Subnetworks:
    """Search the survivors of each model, and measure good, random and bad sub-networks.

    Every number is written to ``folder`` as soon as it is measured, so that an interrupted run
    resumes. ``folder/plans`` gets the plans, ``folder/records`` a record of each measurement.

    Args:
        models: fine-tunings of one model on one task; those that can be fine-tuned are, again.
        rules: the rules of the search.
        folder: the folder for all files.
        components: those whose heads and MLPs are pruned. Default: all attention.
        restart_from: the model that the models were fine-tuned from. Fine-tunings after pruning
            then begin with its weights, as in Prasanna et al. (2020), in place of the fine-tuned
            ones.
        say: function that is called with a message on each step.

    Raises:
        UsageError: models of different shapes, one model twice, components that are no heads or
            neurons, a score that they do not have, a model to restart from that has other units,
            widths or another architecture, or a folder of another run or of more models.
        DataError: numbers that are not finite, or files in ``folder`` that cannot be read.
    """
    require_elements(components or ())
    _require_seeds_of_one_model(models)
    competitions = [
        Competition.of(model.model, components, measure="units", at_least=0) for model in models
    ]
    rules.require_score_of(competitions[0].components)
    restart = None if restart_from is None else _restart(restart_from, models)
    settings = {**asdict(rules), **component_settings(components)}
    if restart is not None:
        settings["restart_from"] = restart.model.fingerprint
    claim(folder, settings)
    _require_no_more_models(folder, len(models))
    for number, model in enumerate(models, 1):  # now, not after hours
        claim(folder / f"model{number}", {**model.settings, **settings})
    searches, networks = [], []
    for number, (model, competition) in enumerate(zip(models, competitions, strict=True), 1):
        measuring = _Measuring(
            model=model,
            competition=competition,
            rules=rules,
            seed=number,
            folder=folder,
            restart=restart,
            say=partial(_say_of_model, say, f"model {number} of {len(models)}"),
        )
        search = measuring.search()
        searches.append(search)
        networks += measuring.networks(search)
    return Subnetworks(
        metric=models[0].metric,
        rules=rules,
        models=[str(model.model.path) for model in models],
        searches=searches,
        networks=networks,
        restarted_from=None if restart is None else str(restart_from),
    )


def _restart(path: Path, models: Sequence[TaskModel]) -> TaskModel:
    """The model whose weights fine-tunings after pruning begin with.

    Raises:
        UsageError: nothing is fine-tuned, or it has other units, widths or another architecture
            than the models, or the weights of one of them.
    """
    model = models[0]
    if not model.can_finetune:
        raise UsageError("--restart-from: nothing is fine-tuned; give --epochs or --finetune")
    restart = model.opened(path)
    if _form(restart) != _form(model):
        raise UsageError(
            f"--restart-from {path}: has other units or widths than {model.model.path}; give the "
            "model that it was fine-tuned from"
        )
    architectures = [architecture_of(each.model) for each in (model, restart)]
    differing = [
        f"{name} {architectures[1].get(name)} instead of {architectures[0].get(name)}"
        for name in dict.fromkeys(name for each in architectures for name in each)
        if architectures[0].get(name) != architectures[1].get(name)
    ]
    if differing:
        raise UsageError(
            f"--restart-from {path}: is of another architecture than {model.model.path} "
            f"({', '.join(differing)}); give the model that it was fine-tuned from"
        )
    for each in models:
        if restart.model.fingerprint == each.model.fingerprint:
            raise UsageError(
                f"--restart-from {path}: has the same weights as {each.model.path}; give the model "
                "that it was fine-tuned from"
            )
    return restart


def _form(model: TaskModel) -> tuple[object, ...]:
    """The units and widths of a model, without the output layer, which fine-tunings may lack."""
    widths = replace(model.model.sizes, vocabulary=0, encoder_output_weights=0)
    return validate_shape(model.model.shape), model.model.plan, widths


def _say_of_model(say: Say, model: str, message: str) -> None:
    say(f"{model}: {message}")


@dataclass(frozen=True, kw_only=True)
class _Measuring:
    """The measurements of one model.

    Attributes:
        folder: the folder of all models.
        restart: the model whose weights fine-tunings begin with; None for the pruned ones.
    """

    model: TaskModel
    competition: Competition
    rules: Rules
    seed: int
    folder: Path
    restart: TaskModel | None
    say: Say

    @property
    def _home(self) -> Path:
        """The folder of the model's numbers."""
        return self.folder / f"model{self.seed}"

    def search(self) -> Search:
        """The survivors."""
        return find_survivors(
            self.model,
            self.competition.pool,
            self.rules,
            folder=self._home,
            seed=self.seed,
            say=self.say,
        )

    def networks(self, search: Search) -> list[Network]:
        """The model and its sub-networks, measured."""
        pool = elements_of(self.competition.pool)
        chosen = subnetworks(pool, search.survivors, search.importance, seed=self.seed)
        return [
            self._network(name, elements, scores=search.fingerprint or None)
            for name, elements in {FULL: pool, **chosen}.items()
        ]

    def _network(self, name: str, elements: PruningPlan, *, scores: str | None) -> Network:
        plan = self.competition.full
        if name != FULL:
            origin = Origin(method=method_name(name), seed=self.seed, scores=scores)
            part = plan_of_elements(elements, self.competition.pool)
            plan = plan.replaced_by(part).with_origin(origin)
        plan.save(self.folder / "plans" / f"seed{self.seed}" / f"{name}.json")
        store = Store(
            self._home,
            self.model,
            self.competition,
            outputs=self.folder / RECORDS / OUTPUTS / self._home.name,
        )
        title = f"{name} sub-network of model {self.seed}"
        choice = Choice(plan=plan, title=str(self.model.model.path) if name == FULL else title)
        before = self._record(name, plan, store.before(choice), tuned=False)
        after = None
        if self.model.can_finetune:
            self.say(f"fine-tune {name}")
            if (restart := self.restart) is not None:
                choice = replace(choice, training=f"restarted-{choice.name}", train=lambda: restart)
            measured = store.recovered(choice, Recovery.FINETUNE, self.seed)
            after = self._record(name, plan, measured, tuned=True)
        return Network(seed=self.seed, name=name, elements=elements, before=before, after=after)

    def _record(self, name: str, plan: PruningPlan, measured: Measured, *, tuned: bool) -> Record:
        """The record of a measurement, which is written too."""
        is_full = name == FULL
        pruned, unpruned = ("pruned", "control") if tuned else ("before-finetune", "baseline")
        kind = unpruned if is_full else pruned
        restart = self.restart if tuned else None
        path = self.folder / RECORDS / kind / name / f"seed{self.seed}.json"
        record = record_of(
            self.model,
            plan,
            model=None,  # one for each seed; a study's records have one in common
            study=self.folder.resolve().name,
            value=measured.value,
            kind=kind,
            row=unpruned if is_full else f"{name} sub-network",
            method="none" if is_full else method_name(name),
            requested_percent=0.0 if is_full else None,
            seed=self.seed,
            environment=measured.environment,
            metric_signature=measured.signature,
            fingerprint=measured.fingerprint,
            files=files_beside(path, measured.files, folder=self._home),
            training={
                "model": str(self.model.model.path),
                "parameters": self.model.model.parameters_with(plan),
                "flops": known_flops(plan, self.model.model.sizes),
                RESUMED: measured.resumed,
                CONSTANT: measured.constant,
                **({} if restart is None else {"restarted_from": str(restart.model.path)}),
            },
        )
        record.save(path)
        return record


def _require_no_more_models(folder: Path, given: int) -> None:
    """Check that a folder has no sub-networks of models that are not given any more.

    Raises:
        UsageError: it has, and tables and overlaps would count them.
    """
    if (folder / "plans" / f"seed{given + 1}").exists():
        raise UsageError(
            f"{folder}: has sub-networks of more models than the {given} given; give all of them, "
            "or choose another output folder"
        )


def _require_seeds_of_one_model(models: Sequence[TaskModel]) -> None:
    """Check that models have one shape and different weights.

    Raises:
        UsageError: they have not.
    """
    first = models[0].model
    numbers: dict[object, int] = {}
    for number, model in enumerate(models):
        path, shape = model.model.path, model.model.shape
        if validate_shape(shape) != validate_shape(first.shape):
            raise UsageError(
                f"{path}: of another shape than {first.path}; give fine-tunings of one model"
            )
        if model.model.plan != first.plan:
            raise UsageError(
                f"{path}: keeps other units than {first.path}; give fine-tunings of one model"
            )
        other = numbers.setdefault(model.settings.get("fingerprint", path), number)
        if other != number:
            raise UsageError(
                f"{path}: has the same weights as {models[other].model.path}; give fine-tunings of "
                "different seeds"
            )
