"""Bad input to ``headprune translate``: numbers out of range, and folders that are no models."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fairseq_plugin import ctranslate2_spec
from headprune.exported import ExportedModel
from tests.bad_inputs.table import BadInput
from tests.fairseq_plugin.models import build

_MOSES = {"tokenizer": "moses", "bpe": "subword_nmt", "file": "codes"}
_PIECES = {"tokenizer": None, "bpe": "sentencepiece", "file": "codes"}


@cache
def _files() -> dict[str, bytes]:
    """Create the files of a tiny exported model; returns them by name."""
    spec = ctranslate2_spec.make_spec(build("transformer").eval())
    spec.validate()
    spec.optimize(quantization="float32")
    with TemporaryDirectory() as folder:
        spec.save(folder)
        ExportedModel(
            source_lang="en",
            target_lang="de",
            max_source=100,
            max_target=100,
            plan={},
            quantization="float32",
        ).save(Path(folder))
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def _model(files: dict[str, bytes] | None = None, **described: Any) -> Callable[[Path], None]:
    """Write the model with other files, and another description in headprune.json."""

    def prepare(folder: Path) -> None:
        (folder / "model").mkdir()
        (folder / "secret").write_text("#version: 0.2\na b\n")
        for name, content in {**_files(), **(files or {})}.items():
            (folder / "model" / name).write_bytes(content)
        path = folder / "model" / "headprune.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **described}))
        (folder / "input").write_text("w1 w2\n")

    return prepare


def _linked(folder: Path) -> None:
    _model(text=_MOSES)(folder)
    (folder / "model" / "codes").symlink_to("../secret")


_TRANSLATE = ("headprune", "translate", "{folder}/model", "--input", "{folder}/input")

ROWS = [
    *(
        BadInput(
            label=f"translate: {option} {value}",
            command=(*_TRANSLATE, option, str(value)),
            message=rf"^error: {option} {value}: give at most [\d,]+$",
            prepare=_model(),
            status=2,
        )
        for option in ("--beam", "--batch-size", "--threads")
        for value in (10**9, 10**20)
    ),
    *(
        BadInput(
            label=f"translate: {label}",
            command=(*_TRANSLATE, "-o", "{folder}/output"),
            message=rf"^error: .*{message}",
            prepare=prepare,
            status=1,
        )
        for label, prepare, message in (
            (
                "an invalid vocabulary",
                _model({"shared_vocabulary.json": b"\x00\xff no JSON"}),
                "model: CTranslate2 cannot load it",
            ),
            (
                "an empty vocabulary",
                _model({"shared_vocabulary.json": b"[]"}),
                "CTranslate2 cannot translate with this model",
            ),
            (
                "a truncated model",
                _model({"model.bin": b"\x06\x00\x00\x00"}),
                "model: CTranslate2 cannot load it",
            ),
            (
                "binary BPE codes",
                _model({"codes": b"\x00\xff\xfe"}, text=_MOSES),
                r"codes: line 1 is not valid UTF-8",
            ),
            (
                "BPE codes that are other text",
                _model({"codes": b"some other text\nof two lines\n"}, text=_MOSES),
                r"codes: no codes of subword-nmt$",
            ),
            (
                "BPE codes of no version",
                _model({"codes": b"#version: new\na b\n"}, text=_MOSES),
                r"codes: no codes of subword-nmt$",
            ),
            (
                "an invalid sentencepiece model",
                _model({"codes": b"\x00\xff\xfe"}, text=_PIECES),
                r"codes: no sentencepiece model ",
            ),
            (
                "a file outside the folder",
                _model(text={**_MOSES, "file": "../secret"}),
                r"headprune\.json: names a file outside the folder, \.\./secret$",
            ),
            (
                "a file that is a link out of the folder",
                _linked,
                r"headprune\.json: names a file outside the folder, codes$",
            ),
            (
                "an invalid length",
                _model(max_source=-5),
                r"headprune\.json: max_source is -5, it has to be from 2 to ",
            ),
            (
                "a text with another type",
                _model(text={**_MOSES, "truecaser": 3}),
                r"headprune\.json: not as headprune writes it: truecaser of text is 3$",
            ),
            (
                "a text that names no file",
                _model(text={}),
                r"headprune\.json: not as headprune writes it: text names no file$",
            ),
        )
    ),
]
