"""headprune.json, which describes a folder exported to CTranslate2."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headprune.errors import DataError
from headprune.json_files import json_object, known_values
from headprune.plan import PruningPlan

if TYPE_CHECKING:
    from data_prep.lib.text import TextProcessing

_NAME = "headprune.json"
_FORMAT = "headprune.ctranslate2"
_VERSION = 1

_LONGEST = 10**6
"""Upper limit in tokens, above the number of positions of every model."""


def is_exported(path: Path) -> bool:
    """Check if a folder is one that `headprune export --to ctranslate2` wrote."""
    return (path / "model.bin").is_file() and (path / _NAME).is_file()


@dataclass(frozen=True, kw_only=True)
class ExportedModel:
    """Description of an exported translation model.

    Attributes:
        source_lang, target_lang: language codes such as ``de``.
        max_source, max_target: lengths of the longest sentences in tokens, with the end token.
        plan: the pruning plan as JSON values.
        quantization: CTranslate2's name for the data type of the weights.
        text: the text processing: ``tokenizer``, ``bpe``, the name of the sub-word ``file`` in the
            folder and, for truecased text, of the ``truecaser``; ``full_codes`` where the corpus
            was tokenised with codes such as ``en_GB``. None if it is not known.
        check: description of the comparison with fairseq's scores, with the measured differences.
        parameters: number of parameters of the exported model; None in older folders.
        sizes: its ``headprune.cost.Sizes`` by name; None in older folders.
    """

    source_lang: str
    target_lang: str
    max_source: int
    max_target: int
    plan: dict[str, Any]
    quantization: str
    text: dict[str, Any] | None = None
    check: dict[str, Any] = field(default_factory=dict)
    parameters: int | None = None
    sizes: dict[str, Any] | None = None

    def save(self, folder: Path) -> None:
        """Write headprune.json into the folder."""
        content = {"format": _FORMAT, "version": _VERSION, **asdict(self)}
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        (folder / _NAME).write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> ExportedModel:
        """Read headprune.json of the folder.

        Raises:
            DataError: the folder was not made by `headprune export`, or the file is broken.
        """
        path = folder / _NAME
        if not path.exists():
            raise DataError(
                f"{folder}: no {_NAME} in it; give a folder that `headprune export --to "
                "ctranslate2` wrote"
            )
        content = json_object(path)
        if content.pop("format", None) != _FORMAT:
            raise DataError(
                f'{path}: does not describe an exported model (no "format": "{_FORMAT}")'
            )
        if (version := content.pop("version", None)) != _VERSION:
            raise DataError(f"{path}: version {version!r}, this headprune reads {_VERSION}")
        known = known_values(cls, content, source=f"{path}: not as headprune writes it")
        model = cls(**known)
        for name, most in (("max_source", model.max_source), ("max_target", model.max_target)):
            if not 2 <= most <= _LONGEST:
                raise DataError(f"{path}: {name} is {most}, it has to be from 2 to {_LONGEST:,}")
        if model.text is not None:
            _check_text(model.text, path)
        return model

    def text_processing(self, folder: Path) -> TextProcessing | None:
        """The preparation of the model's text, with the files of its folder; None if not known."""
        from data_prep.lib.text import TextProcessing

        if self.text is None:
            return None
        truecaser = self.text.get("truecaser")
        return TextProcessing(
            source_lang=self.source_lang,
            target_lang=self.target_lang,
            tokenizer=self.text["tokenizer"],
            bpe=str(self.text["bpe"]),
            file=folder / str(self.text["file"]),
            truecaser=None if truecaser is None else folder / truecaser,
            full_codes=self.text.get("full_codes", False),
        )


def _check_text(text: dict[str, Any], path: Path) -> None:
    """Check the types, and that the files lie inside the folder; the file is untrusted input."""
    for entry, value in text.items():
        if not isinstance(value, bool if entry == "full_codes" else str | None):
            raise DataError(f"{path}: not as headprune writes it: {entry} of text is {value!r:.40}")
    if {*text} - {"truecaser", "full_codes"} != {"tokenizer", "bpe", "file"} or not text["file"]:
        raise DataError(f"{path}: not as headprune writes it: text names no file")
    for name in (text["file"], text.get("truecaser")):
        if name is None:
            continue
        file = path.parent / name
        if Path(name).name != name or not file.resolve().is_relative_to(path.parent.resolve()):
            raise DataError(f"{path}: names a file outside the folder, {name}")


STACKS = {"encoder": ("ES",), "decoder": ("ED", "DS")}
"""The components whose attentions have one number of heads in CTranslate2."""


def stack_heads(plan: PruningPlan) -> dict[str, int]:
    """The number of heads of each attention of a stack, that of its largest one."""
    return {
        stack: max(1, *(count for name in names for count in plan.counts.get(name, ())))
        for stack, names in STACKS.items()
    }


def computed_plan(plan: PruningPlan) -> PruningPlan:
    """The plan with as many heads as CTranslate2 computes, which fills up smaller attentions."""
    plan = plan.without_units_of_dropped_layers()
    heads = stack_heads(plan)
    filled = {
        name: [range(heads[stack])] * len(plan.units[name])
        for stack, names in STACKS.items()
        for name in names
        if name in plan.units
    }
    return replace(plan, kept={**plan.kept, **filled}).without_units_of_dropped_layers()
