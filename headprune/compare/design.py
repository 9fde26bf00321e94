"""The design of a comparison: which models it measures, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headprune.budget import SPEED, Goal, goal_of
from headprune.compare.competition import Competition
from headprune.compare.requirements import possible_recoveries, require_methods, require_speeds
from headprune.compare.rows import CONTROL
from headprune.components import NEURONS
from headprune.errors import UsageError
from headprune.methods.adversarial import IMPORTANT_FIRST
from headprune.methods.method import Method
from headprune.methods.registry import method_named
from headprune.recovery.kinds import Recovery
from headprune.speed.latency import Latency
from headprune.task_model import TaskModel, require_scores


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A model to measure: a method, the amount that it prunes, and a seed.

    Attributes:
        method: the name of a method, or ``control`` for the model as it was given.
        amount: the share to prune in percent, or the speed to reach; 0 for a control.
    """

    method: str
    amount: float
    seed: int


@dataclass(frozen=True, kw_only=True)
class Design:
    """The methods of a comparison with their amounts, seeds and recoveries.

    Attributes:
        methods: by name; ``random`` is among them.
        amounts: percentages or speeds, see ``compare``.
        seeds, random_seeds: of fine-tunings, and of random plans.
        tuned: the names of the methods whose models are recovered, and ``control``.
        recoveries: those that are possible with the model.
        competition: the units that compete.
        latency: the time that units save, for speeds.
    """

    methods: Mapping[str, Method]
    amounts: tuple[float, ...]
    seeds: tuple[int, ...]
    random_seeds: tuple[int, ...]
    tuned: frozenset[str]
    recoveries: tuple[Recovery, ...]
    competition: Competition
    latency: Latency | None

    @classmethod
    def of(
        cls,
        model: TaskModel,
        *,
        scores: Sequence[str],
        amounts: Sequence[float],
        seeds: Sequence[int],
        random_seeds: Sequence[int] | None,
        tuned: Sequence[str] | None,
        at_least: int,
        components: Sequence[str] | None,
        measure: str,
        latency: Latency | None,
        recoveries: Sequence[Recovery],
    ) -> Design:
        """The design of a comparison on one model; for the arguments see ``compare``.

        Raises:
            UsageError: no such score, a method that cannot prune these units or train the model,
                or an amount that cannot be reached.
        """
        methods = {name: method_named(name) for name in dict.fromkeys([*scores, "random"])}
        if {"adversarial", f"gradient{IMPORTANT_FIRST}"} <= {*methods}:
            raise UsageError(f"adversarial and gradient{IMPORTANT_FIRST} are one method; give one")
        possible = possible_recoveries(model, recoveries, methods=list(methods.values()))
        for name in tuned or ():
            if name not in (*scores, "random"):
                raise UsageError(
                    f"{name} is to be fine-tuned, but is not among the scores compared"
                )
        design = cls(
            methods=methods,
            amounts=tuple(amounts),
            seeds=tuple(seeds),
            random_seeds=tuple(seeds if random_seeds is None else random_seeds),
            tuned=frozenset([*(scores if tuned is None else tuned), CONTROL, "random"]),
            recoveries=tuple(possible),
            competition=Competition.of(model.model, components, measure=measure, at_least=at_least),
            latency=latency,
        )
        design._require_possible(model)
        return design

    def _require_possible(self, model: TaskModel) -> None:
        """Raise a UsageError for what cannot be done at the start rather than after hours."""
        users = {
            # A score that is compared itself is named by itself.
            score: score if score in self.methods else name
            for name, method in self.methods.items()
            for score in method.needs_scores
        }
        self.competition.require_possible(users, self.amounts)
        require_scores(model, self.needed_scores)
        if (self.competition.measure == SPEED) != (self.latency is not None):
            raise UsageError("--speedup and --latency go together")
        methods = list(self.methods.values())
        require_methods(methods, model, self.competition, latency=self.latency)
        if self.latency is not None:
            require_speeds(
                methods, self.competition, self.latency, self.amounts, seed=self.seeds[0]
            )

    @property
    def needed_scores(self) -> list[str]:
        """The names of the scores that the methods choose by."""
        return [score for method in self.methods.values() for score in method.needs_scores]

    @property
    def computed_scores(self) -> list[str]:
        """The names of the scores to compute: for the choices of methods, and to judge scores.

        Ablation judges; but that of single neurons takes so long that it is computed only for a
        method that needs it.
        """
        judges = [] if {*self.competition.components} & {*NEURONS} else ["ablation"]
        return list(dict.fromkeys([*self.needed_scores, *judges, "random"]))

    def goal(self, amount: float) -> Goal:
        """The budget or the speed of an amount."""
        return goal_of(amount, self.competition.measure)

    @property
    def cells(self) -> list[Cell]:
        """The models to measure; the controls, which only trainings need, come first."""
        has_controls = any(each.trains for each in self.recoveries)
        controls = [
            Cell(method=CONTROL, amount=0.0, seed=seed) for seed in self.seeds if has_controls
        ]
        return controls + [
            Cell(method=name, amount=amount, seed=seed)
            for amount in self.amounts
            for name in self.methods
            for seed in (self.random_seeds if name == "random" else self.seeds)
        ]

    def recoveries_of(self, method: str) -> list[Recovery]:
        """The treatments after pruning by a method; the model as it was given is only trained."""
        if method not in self.tuned:
            return []
        return [each for each in self.recoveries if each.trains or method != CONTROL]
