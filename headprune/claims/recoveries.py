"""Records after one of several recoveries.

Pruned and unpruned models after fine-tuning and after distillation have records of the same kinds
and rows; a claim is about those of one recovery.
"""

from __future__ import annotations

from collections.abc import Sequence

from headprune.errors import UsageError
from headprune.recovery.kinds import Recovery
from headprune.results.control_tests import Located
from headprune.results.record import Record
from headprune.results.signature import fields_of

_WITHOUT = ("baseline", "before-finetune")
"""Kinds of records before any recovery."""


def recovery_of(record: Record) -> str | None:
    """The name of the recovery before a measurement; None without one."""
    if record.kind in _WITHOUT:
        return None
    # Distillations have their weights in brackets behind the name.
    name = fields_of(record.signature).get("recovery", "").partition("[")[0]
    return name or (None if record.finetune == "none" else str(Recovery.FINETUNE))


def after_recovery(results: Sequence[Located], recovery: str | None) -> list[Located]:
    """The records after one recovery, and those before any.

    Args:
        results: records and their files.
        recovery: the name of the recovery; None where all records are of one.

    Raises:
        UsageError: there is no pruned model after this recovery, or none is named and there are
            pruned models after several in one study.
    """
    by_study: dict[str, dict[str, None]] = {}
    for _, record in results:
        name = recovery_of(record)
        if name is not None and record.kind == "pruned":
            by_study.setdefault(record.study or record.model or "", {}).setdefault(name)
    present = list(dict.fromkeys(name for names in by_study.values() for name in names))
    if recovery is None:
        several = next((names for names in by_study.values() if len(names) > 1), None)
        if several is not None:
            raise UsageError(
                f"the records are of models after several recoveries: {', '.join(several)}; "
                "choose one with --recovery"
            )
        # Controls without a pruned model of their recovery belong to no claim.
        wanted = {*present, None}
    else:
        if recovery not in present:
            raise UsageError(
                f"--recovery {recovery}: there is no pruned model after it; there are "
                f"{', '.join(present) or 'none after any'}"
            )
        wanted = {recovery, None}
    if not present:
        return list(results)
    return [(path, record) for path, record in results if recovery_of(record) in wanted]
