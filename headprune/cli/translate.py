"""The command `headprune translate`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from headprune.translate import EngineSettings, Translator

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
        Path,
        typer.Argument(
            help="A fairseq checkpoint (.pt), a Hugging Face folder, or a folder from `headprune "
            "export --to ctranslate2`."
        ),
    ],
    input: Annotated[
        Path | None, typer.Option(help="Text, one sentence a line. Default: standard input.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write. Default: standard output.")
    ] = None,
    beam: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Width of the beam search. Default: that of a Hugging Face model's "
            "generation_config.json, else 5.",
            show_default=False,
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Number of sentences of a batch.")] = 32,
    threads: Annotated[
        int,
        typer.Option(
            min=0,
            help="Number of cores of a CPU; 0: all. A folder from `headprune export` translates a "
            "batch on each, other models one batch on all.",
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
            "sub-words, separated by spaces (not for Hugging Face models). Default: raw, or tokens "
            "for a model that does not know how its text was prepared.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="For a checkpoint: the folder of the binarised data, or of the dictionaries. "
            "Default: the data that it was trained on."
        ),
    ] = None,
    shortlist: Annotated[
        Path | None,
        typer.Option(
            help="File from `headprune shortlist`: choose among the target words of the words of a "
            "sentence. Default: choose among all."
        ),
    ] = None,
) -> None:
    """Translate lines of text with a model.

    A Hugging Face model reads and writes plain text; its search is that of its
    generation_config.json.

    For a checkpoint whose data were prepared by data_prep, or an export of it, the text is
    normalised, tokenised and split into sub-words as in training, and sub-words of the translations
    are joined, as fairseq-generate does with --tokenizer moses --remove-bpe. Other checkpoints take
    text that is split into tokens already.

    Translations have at most 200 tokens. A warning says if words are unknown to the model.
    """
    import sys
    from contextlib import ExitStack

    from data_prep.lib.corpus import decode, open_bytes
    from data_prep.lib.parallel import available_cores
    from headprune.errors import UsageError
    from headprune.files import atomic_path, require_separate, require_standard_output
    from headprune.translate import EngineSettings

    if output is None:
        require_standard_output()
    require_separate({"--output": output}, inputs=(model, input, data, shortlist))
    for option, value, most in (
        ("--beam", beam, _WIDEST_BEAM),
        ("--batch-size", batch_size, _LARGEST_BATCH),
        ("--threads", threads, _MOST_THREADS),
    ):
        if value is not None and value > most:
            raise UsageError(f"{option} {value}: give at most {most:,}")
    settings = EngineSettings(
        device=device.value,
        threads=threads or available_cores(),
        beam=beam,
        batch_size=batch_size,
        shortlist=shortlist,
    )
    translator = _load(model, settings, raw=raw, data=data)
    with ExitStack() as stack:
        source = sys.stdin.buffer if input is None else stack.enter_context(open_bytes(input))
        target = sys.stdout
        if output is not None:
            temporary = stack.enter_context(atomic_path(output))
            target = stack.enter_context(open(temporary, "w", encoding="utf-8", newline="\n"))
        lines = decode(source, name=str(input or "standard input"))
        for translation in translator.translate(lines):
            print(translation, file=target)


def _load(
    path: Path, settings: EngineSettings, *, raw: bool | None, data: Path | None
) -> Translator:
    """The model of a file or folder, of any backend or exported to CTranslate2."""
    from headprune.backends import find_backend, no_model
    from headprune.errors import DataError, UsageError, needing
    from headprune.exported import ExportedModel, is_exported
    from headprune.translate import TranslatesLines, line_translator

    if is_exported(path):
        if data is not None:
            raise UsageError("--data goes with a fairseq checkpoint")
        with needing(
            "translating needs the package ctranslate2", install="pip install ctranslate2"
        ):
            from headprune.ctranslate2_engine import load_engine

        exported = ExportedModel.load(path)
        return line_translator(
            load_engine(path, exported, settings),
            exported.text_processing(path),
            raw=raw,
            name=path,
            batch_size=settings.batch_size,
        )
    backend = find_backend(path)
    if backend is None:
        raise DataError(f"{no_model(path)}, or one from `headprune export --to ctranslate2`")
    if not isinstance(backend, TranslatesLines):
        raise UsageError(f"{path} is {backend.models}, which does not translate")
    return backend.line_translator(path, settings, raw=raw, data=data)
