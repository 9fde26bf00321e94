"""Bad input to the commands of the core: places that cannot be written to, broken JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.bad_inputs.table import BadInput

LONG = "n" * 300


def _file(folder: Path) -> None:
    (folder / "file").write_text("", encoding="utf-8")
    (folder / "model.pt").write_text("not read before the output is looked at", encoding="utf-8")


def _json(text: str) -> Callable[[Path], None]:
    """Write a file with this text, which may be invalid JSON."""

    def write(folder: Path) -> None:
        (folder / "file.json").write_text(text, encoding="utf-8")

    return write


_BROKEN = {
    "deep": ("[" * 100_000, "not read: more than 50 levels deep"),
    "long number": ("1" * 5000, "a number of 5,000 digits; more than 100 are not read"),
    "large number": ('{"bleu": 1e400}', "1e400 is larger than any number that can be computed"),
    "NaN": ('{"bleu": NaN}', "NaN is no number"),
    "twice": ('{"kept": 1, "kept": 2}', '"kept" is there twice in one object'),
}

_READERS = {
    "show": ("show", "{folder}/file.json"),
    "plan": ("plan", "--percent", "50", "--scores", "{folder}/file.json"),
    "report": ("report", "{folder}/file.json", "--output-dir", "{folder}/out"),
}

ROWS = [
    *(
        BadInput(
            label=f"{reader}: JSON: {kind}",
            command=("headprune", *command),
            message=rf"^error: .*file\.json: {message}",
            prepare=_json(text),
            status=1,
        )
        for reader, command in _READERS.items()
        for kind, (text, message) in _BROKEN.items()
    ),
    BadInput(
        label="plan: a name that is too long",
        command=("headprune", "plan", "--percent", "50", "-o", f"{{folder}}/new/{LONG}"),
        message=r"^error: .*n: cannot write \(File name too long\)$",
        status=1,
    ),
    BadInput(
        label="plan: an output below a file",
        command=("headprune", "plan", "--percent", "50", "-o", "{folder}/file/plan.json"),
        message=r"^error: .*plan\.json: cannot write \(Not a directory\)$",
        prepare=_file,
        status=1,
    ),
    *(
        BadInput(
            label=f"{command[0]}: an output below a file, found before the model is read",
            command=("headprune", *command, "-o", "{folder}/file/out"),
            message=r"^error: .*file/out: cannot write \(Not a directory\)$",
            prepare=_file,
            status=1,
        )
        for command in (
            ("scores", "{folder}/model.pt"),
            ("compare", "{folder}/model.pt"),
            ("iterate", "{folder}/model.pt", "--percent", "50"),
            ("glue",),
        )
    ),
    BadInput(
        label="plan: more heads than fit",
        command=("headprune", "plan", "--shape", f"ES=1{'0' * 20}x6", "--percent", "50"),
        message=r"^error: --shape ES=10*x6: more than 10,000,000 heads$",
        status=2,
    ),
    BadInput(
        label="plan: more heads than fit, by layer",
        command=("headprune", "plan", "--shape", "ES=999999999,8", "--percent", "50"),
        message=r"^error: a model of 1,000,000,007 heads is larger than the 10,000,000 supported$",
        status=2,
    ),
    *(
        BadInput(
            label=f"{command[0]}: {what}, found before the model is read",
            command=(
                "headprune",
                command,
                "{folder}/model.pt",
                *more,
                *options,
                "-o",
                "{folder}/o",
            ),
            message=message,
            prepare=_file,
            status=2,
        )
        for command, more in (("compare", ()), ("iterate", ("--percent", "50")))
        for what, options, message in (
            (
                "a flag that fairseq does not have",
                ("--finetune", "--arch transformer_headpruned_tiny --max-epoch 1 --lrr 1"),
                r"^error: --finetune: fairseq-train: unrecognized arguments: --lrr",
            ),
            (
                "an unknown metric",
                ("--metric", "bluh"),
                r"^error: --metric bluh: it is one of loss, bleu$",
            ),
        )
    ),
]
