"""The file beside a pruned model that says how its units were chosen, and what was done then.

It is ``headprune.json`` in the model's folder, or ``model.pt.headprune.json`` beside a checkpoint.
It names the weights by their fingerprint: beside other weights, as after a fine-tuning, it counts
no more.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from headprune.errors import DataError
from headprune.files import write_text_atomically
from headprune.json_files import json_object
from headprune.model import PrunableModel
from headprune.plan import PruningPlan

NAME = "headprune.json"
FORMAT = "headprune.provenance"
_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """The plan of a pruned model, and what was done after pruning.

    Attributes:
        plan: the units that it keeps, with the origin of the last plan.
        recovery: what was done after pruning without training, as in signatures, such as
            ``refit[500]``; None for nothing.
        fingerprint: the fingerprint of the weights.
    """

    plan: PruningPlan
    recovery: str | None
    fingerprint: str

    def save(self, model: Path) -> None:
        """Write the file beside a model, whole or not at all."""
        content = {
            "format": FORMAT,
            "version": _VERSION,
            "weights": self.fingerprint,
            "recovery": self.recovery,
            "plan": json.loads(self.plan.to_json()),
        }
        write_text_atomically(path_beside(model), json.dumps(content, indent=1) + "\n")

    @classmethod
    def of(cls, model: PrunableModel) -> Provenance | None:
        """Read the file beside a model; None where there is none, or it is of other weights.

        Raises:
            DataError: the file cannot be read, or is no such file.
        """
        path = path_beside(model.path)
        if not path.is_file():
            return None
        content = json_object(path)
        try:
            if content["format"] != FORMAT or content["version"] != _VERSION:
                raise DataError(f"{path}: not written by headprune, or by a later version")
            recovery, fingerprint = content["recovery"], str(content["weights"])
            plan = PruningPlan.from_json(json.dumps(content["plan"]), source=str(path))
        except KeyError as missing:
            raise DataError(f"{path}: {missing} is missing") from None
        # The plan first: the fingerprint reads all weights.
        if plan.kept != model.plan.kept or fingerprint != model.fingerprint:
            return None
        return cls(
            plan=plan,
            recovery=None if recovery is None else str(recovery),
            fingerprint=fingerprint,
        )


def path_beside(model: Path) -> Path:
    """The place of the file: in a folder, or beside a checkpoint."""
    return model / NAME if model.is_dir() else model.with_name(f"{model.name}.{NAME}")
