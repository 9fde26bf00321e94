"""Bad input to ``headprune export --to transformers``."""

from __future__ import annotations

from pathlib import Path

from tests.bad_inputs.table import BadInput
from tests.hf_plugin.models import SOME, build


def _pruned(folder: Path) -> None:
    import hf_plugin

    hf_plugin.prune_heads(build("bert"), SOME).save_pretrained(folder / "model")


def _without_weights(folder: Path) -> None:
    _pruned(folder)
    (folder / "model" / "model.safetensors").unlink()


def _taken(folder: Path) -> None:
    _pruned(folder)
    (folder / "out").mkdir()
    (folder / "out" / "notes.txt").write_text("mine", encoding="utf-8")


def _file(folder: Path) -> None:
    (folder / "model").write_text("{}", encoding="utf-8")


_EXPORT = ("headprune", "export", "{folder}/model", "--to", "transformers", "-o", "{folder}/out")

ROWS = [
    BadInput(
        label="export to transformers: a file",
        command=_EXPORT,
        message=r"^error: .*model: --to transformers takes a Hugging Face folder ",
        prepare=_file,
        status=2,
    ),
    BadInput(
        label="export to transformers: no weights",
        command=_EXPORT,
        message=r"^error: .*model: cannot read the weights: ",
        prepare=_without_weights,
        status=1,
    ),
    BadInput(
        label="export to transformers: the folder is taken",
        command=_EXPORT,
        message=r"^error: .*out: exists already; choose another folder$",
        prepare=_taken,
        status=1,
    ),
    BadInput(
        label="export to transformers: into the model's own folder",
        command=(*_EXPORT[:-1], "{folder}/model/out"),
        message=r"^error: .*out: lies in the folder of the model, .*; give another place$",
        prepare=_pruned,
        status=2,
    ),
    BadInput(
        label="export to transformers: --quantization",
        command=(*_EXPORT, "--quantization", "int8"),
        message=r"^error: --quantization, --data and --shortlist go with --to ctranslate2$",
        prepare=_pruned,
        status=2,
    ),
]
