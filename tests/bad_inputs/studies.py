"""Bad input to studies: their YAML files and what snakemake hands them."""

from __future__ import annotations

from pathlib import Path

from tests.bad_inputs.table import BadInput

_STUDY = """\
name: small
data: {name: d, pair: en-de, script: prepare.sh}
arch: transformer_headpruned_tiny
shape: {ES: 4x2, ED: 4x2, DS: 4x2}
train: {max-epoch: 2}
finetune: {max-epoch: 1}
plans: [{percent: 50, label: LABEL}]
"""
_WRITE_PLAN = (
    *("python", "-m", "studies.write_plan", "{folder}/study.yaml", "50pct", "1"),
    "{folder}/plan.json",
)


def _row(what: str, text: str, message: str) -> BadInput:
    def prepare(folder: Path) -> None:
        (folder / "study.yaml").write_text(text, encoding="utf-8")

    return BadInput(
        label=f"study: {what}",
        command=_WRITE_PLAN,
        message=rf"^error: .*study\.yaml: .*{message}",
        prepare=prepare,
        status=1,
    )


def _labelled(label: str) -> str:
    return _STUDY.replace("LABEL", label)


_DOUBLED = "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))


ROWS = [
    _row("lists in lists in lists", "[" * 100_000, "nested more than 50 deep"),
    _row("a number of 5,000 digits", "seeds: [" + "9" * 5000 + "]", "too large"),
    _row("a list as a key", "? [a]\n: b\n", "a list or a mapping as a key"),
    _row("aliases of aliases", f"a0: &a0 [x]\n{_DOUBLED}", "more than 20,000 values"),
    _row("a date that does not exist", "name: 2024-13-13\n", "not valid YAML"),
    _row("a file that is too long", "#" * 300_000, "longer than 256 KiB"),
    _row("a label that is the folder above", _labelled("'..'"), "no folder can be named after"),
    _row("a label without Latin letters", _labelled("половина"), "no folder can be named after"),
    _row("a label like the control's", _labelled("CONTROL"), "'CONTROL' is the same row as"),
    _row("a seed beyond 32 bits", _labelled("x") + "seeds: [4294967296]\n", "seeds: a whole"),
    _row("a shape without end", _labelled("x").replace("4x2", "9x9999999999"), "shape.ES: "),
]
