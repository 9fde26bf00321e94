"""The command `headprune translate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from headprune.exported import ExportedModel

app = typer.Typer(no_args_is_help=True, add_completion=False)


# CTranslate2 ends the process where memory or threads do not suffice.
_WIDEST_BEAM = 1000
_LARGEST_BATCH = 100_000
_MOST_THREADS = 1024


class Device(StrEnum):
    """The device that translates."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


@app.command()
def translate(
    model: Annotated[
        Path, typer.Argument(help="A folder from `headprune export --to ctranslate2`.")
    ],
    input: Annotated[
        Path | None, typer.Option(help="Text, one sentence a line. Default: standard input.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write. Default: standard output.")
    ] = None,
    beam: Annotated[int, typer.Option(min=1, help="Width of the beam search.")] = 5,
    batch_size: Annotated[int, typer.Option(min=1, help="Number of sentences of a batch.")] = 32,
    threads: Annotated[
        int,
        typer.Option(
            min=0, help="Number of batches that a CPU translates at a time; 0: one for each core."
        ),
    ] = 0,
    device: Annotated[
        Device, typer.Option(help="Device to translate on; auto: a GPU where there is one.")
    ] = Device.auto,
    raw: Annotated[
        bool | None,
        typer.Option(
            "--raw/--tokens",
            help="raw: input and output are plain text. tokens: input and output are the model's "
            "sub-words, separated by spaces. Default: raw, or tokens for a model that does not "
            "know how its text was prepared.",
        ),
    ] = None,
) -> None:
    """Translate lines through CTranslate2.

    For a model whose data were prepared by data_prep, the text is normalised, tokenised and split
    into sub-words as in training, and sub-words of the translations are joined, as
    fairseq-generate does with --tokenizer moses --remove-bpe. Other models take text that is split
    into tokens already.
    """
    import sys
    from contextlib import ExitStack

    from data_prep.lib.corpus import decode, open_bytes
    from data_prep.lib.parallel import available_cores
    from headprune.errors import UsageError, needing
    from headprune.exported import ExportedModel
    from headprune.files import atomic_path, require_standard_output

    if output is None:
        require_standard_output()
    with needing("translating needs the package ctranslate2", install="pip install ctranslate2"):
        from headprune.translate import LineTranslator, load_translator

    for option, value, most in (
        ("--beam", beam, _WIDEST_BEAM),
        ("--batch-size", batch_size, _LARGEST_BATCH),
        ("--threads", threads, _MOST_THREADS),
    ):
        if value > most:
            raise UsageError(f"{option} {value}: give at most {most:,}")
    exported = ExportedModel.load(model)
    split, join = _text_functions(exported, model, raw=raw)
    translator = LineTranslator(
        translator=load_translator(
            model, device=device.value, threads=threads or available_cores()
        ),
        model=exported,
        split=split,
        join=join,
        beam=beam,
        batch_size=batch_size,
    )
    with ExitStack() as stack:
        source = sys.stdin.buffer if input is None else stack.enter_context(open_bytes(input))
        target = sys.stdout
        if output is not None:
            temporary = stack.enter_context(atomic_path(output))
            target = stack.enter_context(open(temporary, "w", encoding="utf-8", newline="\n"))
        lines = decode(source, name=str(input or "standard input"))
        for translation in translator.translate(lines):
            print(translation, file=target)


def _text_functions(
    exported: ExportedModel, folder: Path, *, raw: bool | None
) -> tuple[Callable[[str], list[str]], Callable[[Sequence[str]], str]]:
    """The functions that split a line into tokens and join tokens to a line."""
    from data_prep.lib.text import TextProcessing
    from headprune.errors import UsageError

    if raw and exported.text is None:
        raise UsageError(
            f"--raw: {folder} does not know how its text was prepared; give text that is split "
            "into tokens, and --tokens"
        )
    if exported.text is None or raw is False:
        return str.split, " ".join
    processing = TextProcessing(
        source_lang=exported.source_lang,
        target_lang=exported.target_lang,
        tokenizer=exported.text["tokenizer"],
        bpe=str(exported.text["bpe"]),
        file=folder / str(exported.text["file"]),
    )
    return processing.splitter(), processing.joiner()
