"""Backends: the libraries whose models headprune opens, found by the group `headprune.backends`.

An entry point is called NAME.KIND, its KIND being what a model is: `file`, `folder`, or `hub` for
the name of a model that is downloaded. It names an object that has the protocol ``Backend``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from headprune import plugins
from headprune.errors import DataError, UsageError

if TYPE_CHECKING:
    from headprune.model import PrunableModel
    from headprune.plan import PruningPlan
    from headprune.recovery.refit import RefittedModel, Target
    from headprune.scores import HeadScores
    from headprune.scores.compute import Watch
    from headprune.scores.syntax import Parse
    from headprune.task_model import TaskModel

GROUP = "headprune.backends"

PERMUTATIONS = 200
"""The default of the largest number of random orders of the score ``shapley``."""

Given = Mapping[str, Any]
"""Options that not every backend has, by name in Python; only those that the user gave."""


@dataclass(frozen=True, kw_only=True)
class ExportTarget:
    """A format that a backend writes models in.

    Attributes:
        summary: a few words, for the help of `headprune export --to`.
        description: a paragraph, for the help of `headprune export`.
        options: names of the options that go with this target alone.
    """

    summary: str
    description: str
    options: tuple[str, ...] = ()


BATCH_SIZE = 32
"""The number of examples that a model scores at once, where its backend has no other."""

SHAPLEY_BATCH_SIZE = 8
"""That of the score ``shapley``, which walks each random order of the units on one batch.

Its variance is (v + w / b) / n, of n orders on batches of b examples, and its cost grows with n b.
For the same cost small batches have less variance, as that between orders, v, falls with n.
"""


@dataclass(frozen=True, kw_only=True)
class ScoreRequest:
    """The scores to compute, and how; see `headprune scores --help`.

    Attributes:
        scores: the names of the scores.
        components: those whose units are scored; None: all attention.
        split: the split of the data; None: the backend's default.
        metric: the metric of ablation; None: the backend's default.
        max_examples: compute scores on a random subset of this size; None: on all examples.
        batch_size: the number of examples in a batch; None: the backend's default.
        seed: the seed of the score ``random``.
        weights: the weights of the score ``combination``.
        watch: wraps the batches of a pass, for a progress bar.
        without_labels: score by the model's own outputs in the place of labels.
        permutations: the largest number of random orders of the score ``shapley``.
    """

    scores: Sequence[str]
    components: Sequence[str] | None = None
    split: str | None = None
    metric: str | None = None
    max_examples: int | None = None
    batch_size: int | None = None
    seed: int = 1
    weights: Mapping[str, float]
    watch: Watch
    without_labels: bool = False
    permutations: int = PERMUTATIONS

    def batch_size_for(self, purpose: str, *, default: int = BATCH_SIZE) -> int:
        """The number of examples in a batch of a pass; that of ``shapley`` is smaller by default.

        Args:
            purpose: see ``Scoring.batches``.
            default: the backend's default for other passes.
        """
        from headprune.scores.names import SHAPLEY

        if self.batch_size is not None:
            return self.batch_size
        return min(default, SHAPLEY_BATCH_SIZE) if purpose == SHAPLEY else default

    def metric_or(self, default: str) -> str:
        """The metric of ablation, which is the divergence without labels.

        Raises:
            UsageError: another metric without labels.
        """
        if not self.without_labels:
            return self.metric or default
        if self.metric not in (None, "divergence"):
            raise UsageError(
                f"--metric {self.metric}: needs labels; --without-labels measures the divergence"
            )
        return "divergence"


class Backend(Protocol):
    """A library's models: how to recognise, open, export, score and compare them.

    The module that holds the object imports its library inside methods only, and raises a
    UsageError where that is not installed (``headprune.errors.needing``).
    """

    @property
    def models(self) -> str:
        """A noun phrase for one model on disk, such as ``a fairseq checkpoint (.pt)``."""

    @property
    def pruned_help(self) -> str:
        """A paragraph on the use of pruned models, for the help of `headprune prune`."""

    @property
    def export_targets(self) -> Mapping[str, ExportTarget]:
        """The formats to export to, by name."""

    def recognises(self, model: str) -> bool:
        """Tell, quickly, if a path (or the name of a model to download) is one of its models."""

    def open(self, path: Path) -> PrunableModel:
        """The model of a path."""

    def export(self, path: Path, *, target: str, output: Path, given: Given) -> str:
        """Write the model in another format, and return a description of what was written.

        Args:
            target: one of ``export_targets``.
            given: the target's own options.
        """

    def score(self, model: str, request: ScoreRequest, *, given: Given) -> dict[str, HeadScores]:
        """Compute scores of a model."""

    def score_syntax(
        self, model: str, *, parses: Sequence[Parse], file_name: str, given: Given
    ) -> dict[str, HeadScores]:
        """Compute the syntactic roles of a model's heads on parsed sentences.

        Args:
            file_name: the name of the file with the sentences.
        """

    def task_model(
        self,
        path: Path,
        *,
        output: Path | None,
        finetune: bool,
        max_examples: int | None,
        watch: Watch,
        given: Given,
    ) -> TaskModel:
        """The model with its data, for `headprune compare`, `iterate` and `measure`.

        Args:
            output: the folder that they write to, if any.
            finetune: whether pruned models are fine-tuned where the options do not say it.
            max_examples: compute scores on a random subset of this size.
            given: besides options, ``distillation`` may be a ``Distillation``: pruned models are
                then fine-tuned towards the model.
        """

    def refit_on_text(
        self,
        path: Path,
        plan: PruningPlan,
        *,
        target: Target,
        max_examples: int | None,
        watch: Watch,
        given: Given,
    ) -> RefittedModel:
        """Prune a model, and re-fit it on text without labels.

        Args:
            target: see ``headprune.recovery.refit.refit``.
            max_examples: the largest number of texts; None for the default number.

        Raises:
            UsageError: models of this kind are not re-fitted on text alone.
        """


class HubBackend(Backend, Protocol):
    """A backend that also knows models by their names, and downloads them."""

    def download_command(self, name: str) -> str:
        """A shell command with which a user gets the folder of a model."""


def backends(kind: str) -> list[Backend]:
    """The installed backends whose models are of one kind: ``file``, ``folder`` or ``hub``."""
    return [
        backend
        for name, backend in plugins.load_known(GROUP).items()
        if name.rpartition(".")[2] == kind
    ]


def hub_backend(name: str) -> HubBackend | None:
    """The backend that can download a model of this name; None where none can."""
    backend = next((each for each in backends("hub") if each.recognises(name)), None)
    return cast("HubBackend | None", backend)


def all_backends() -> list[Backend]:
    """Every installed backend once."""
    return list({id(backend): backend for backend in plugins.load_known(GROUP).values()}.values())


def find_backend(path: Path) -> Backend | None:
    """The backend that recognises a file or folder; None where none does.

    Raises:
        DataError: there is no such path, or it cannot be read.
    """
    if not path.exists():
        advice = ""
        if hub := hub_backend(str(path)):
            command = hub.download_command(str(path))
            advice = f"; a model on a hub has to be saved in a folder first: {command}"
        raise DataError(f"{path}: no such file or folder{advice}")
    try:
        candidates = backends("folder" if path.is_dir() else "file")
        return next((each for each in candidates if each.recognises(str(path))), None)
    except OSError as error:
        raise DataError(f"{path}: cannot read ({error.strerror})") from None


def backend_of(path: Path) -> Backend:
    """The backend that recognises a file or folder.

    Raises:
        DataError: there is no such path, it cannot be read, or no backend recognises it.
    """
    backend = find_backend(path)
    if backend is None:
        raise no_model(path)
    return backend


def backend_of_name(model: str) -> Backend:
    """The backend of a path, or of a model's name on a hub.

    Raises:
        DataError: no backend recognises it.
    """
    if Path(model).exists():
        return backend_of(Path(model))
    backend = hub_backend(model)
    if backend is None:
        raise DataError(f"{model}: no such file or folder")
    return backend


_NAMES_INSIDE = "model", "model.pt", "checkpoint_best.pt"
"""The names of models in the folders that commands and trainings write."""


def no_model(path: Path) -> DataError:
    """The error for a file or folder that no backend recognises."""
    kind = "folder" if path.is_dir() else "file"
    known = " or ".join(backend.models for backend in backends(kind))
    advice = f"give {known}" if known else "no backend for such models is installed"
    inside = (path / name for name in _NAMES_INSIDE)
    model = next((each for each in inside if each.exists() and find_backend(each)), None)
    if model is not None:
        advice = f"give the model in it, {model}"
    return DataError(f"{path}: not the {kind} of a model; {advice}")


def open_model(path: str | Path) -> PrunableModel:
    """Open a model of any installed backend: a fairseq checkpoint, a Hugging Face folder, ...

    Raises:
        UsageError: the backend's library is missing, or the model cannot be pruned.
        DataError: no backend recognises the path, or the model's files are damaged.
    """
    path = Path(path)
    return backend_of(path).open(path)


def open_task_model(
    path: str | Path, *, max_examples: int | None = None, **given: Any
) -> TaskModel:
    """Open a trained model together with its task and data, to score, measure and fine-tune it.

    Args:
        path: the model's file or folder.
        max_examples: compute scores on a random subset of this size.
        given: the options of `headprune compare` by name: ``train``, ``dev``, ``text``, ``label``,
            ``epochs``, ... for a classifier, ``data``, ``finetune``, ... for a fairseq checkpoint.

    Raises:
        UsageError: options that are missing, or that this kind of model does not have.
        DataError: a model or data that cannot be read.
    """
    from headprune.scores.compute import unwatched

    return backend_of(Path(path)).task_model(
        Path(path),
        output=None,
        finetune=False,
        max_examples=max_examples,
        watch=unwatched,
        given=given,
    )


def score(
    model: str | Path,
    names: Sequence[str],
    *,
    components: Sequence[str] | None = None,
    split: str | None = None,
    metric: str | None = None,
    max_examples: int | None = None,
    batch_size: int | None = None,
    seed: int = 1,
    weights: Mapping[str, float] | None = None,
    without_labels: bool = False,
    permutations: int = PERMUTATIONS,
    **given: Any,
) -> dict[str, HeadScores]:
    """Compute scores of a model; scores of the weights alone need no data.

    Args:
        model: the model's file or folder, or its name on a hub.
        names: the names of the scores; see `headprune scores --help`.
        components, split, metric, max_examples, batch_size, seed: see ``ScoreRequest``.
        weights: the weights of the score ``combination``; None for the default ones.
        without_labels: score by the model's own outputs in the place of labels.
        permutations: the largest number of random orders of the score ``shapley``.
        given: the other options of `headprune scores` by name.

    Raises:
        UsageError: no such score, or options that are missing or that this kind of model does not
            have.
        DataError: a model or data that cannot be read.
    """
    from headprune.scores.combination import ATTENTION_GUIDED
    from headprune.scores.compute import unwatched

    request = ScoreRequest(
        scores=names,
        components=components,
        split=split,
        metric=metric,
        max_examples=max_examples,
        batch_size=batch_size,
        seed=seed,
        weights=ATTENTION_GUIDED if weights is None else weights,
        watch=unwatched,
        without_labels=without_labels,
        permutations=permutations,
    )
    return backend_of_name(str(model)).score(str(model), request, given=given)


def refuse_other_options(given: Given, *known: str, model: object, kind: str) -> None:
    """Raise a UsageError where an option was given that is not among ``known``.

    Args:
        kind: a noun phrase for the model, with an article.
    """
    for name in given:
        if name not in known:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{model} is {kind}, for which there is no {option}")
