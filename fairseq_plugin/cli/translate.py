"""The command `headprune translate`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from data_prep.lib.text import TextProcessing
    from headprune.translate import Engine, EngineSettings

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
            help="A fairseq checkpoint (.pt), or a folder from `headprune export --to ctranslate2`."
        ),
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
    """Translate lines with a fairseq checkpoint or an exported model.

    For a model whose data were prepared by data_prep, the text is normalised, tokenised and split
    into sub-words as in training, and sub-words of the translations are joined, as
    fairseq-generate does with --tokenizer moses --remove-bpe. Other models take text that is split
    into tokens already. A warning says if words are unknown to the model.
    """
    import sys
    from contextlib import ExitStack

    from data_prep.lib.corpus import decode, open_bytes
    from data_prep.lib.parallel import available_cores
    from headprune.errors import UsageError
    from headprune.files import atomic_path, require_separate, require_standard_output
    from headprune.translate import EngineSettings, LineTranslator

    if output is None:
        require_standard_output()
    require_separate({"--output": output}, inputs=(model, input, data, shortlist))
    for option, value, most in (
        ("--beam", beam, _WIDEST_BEAM),
        ("--batch-size", batch_size, _LARGEST_BATCH),
        ("--threads", threads, _MOST_THREADS),
    ):
        if value > most:
            raise UsageError(f"{option} {value}: give at most {most:,}")
    load = _load_exported if model.is_dir() else _load_checkpoint
    engine, processing = load(
        model,
        EngineSettings(
            device=device.value,
            threads=threads or available_cores(),
            beam=beam,
            batch_size=batch_size,
            shortlist=shortlist,
        ),
        data=data,
    )
    if raw and processing is None:
        raise UsageError(
            f"--raw: {model} does not know how its text was prepared; give text that is split "
            "into tokens, and --tokens"
        )
    if raw is False:
        processing = None
    translator = LineTranslator(
        engine=engine,
        split=processing.splitter() if processing else str.split,
        join=processing.joiner() if processing else " ".join,
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


def _load_exported(
    folder: Path, settings: EngineSettings, *, data: Path | None
) -> tuple[Engine, TextProcessing | None]:
    """The model of a folder in CTranslate2, and its text processing if it is known."""
    from data_prep.lib.text import TextProcessing
    from headprune.errors import UsageError, needing
    from headprune.exported import ExportedModel

    if (folder / "config.json").is_file() and not (folder / "model.bin").is_file():
        raise UsageError(
            f"{folder} is a Hugging Face model, which transformers translates with, after `import "
            "hf_plugin` where it is pruned: docs/guides/seq2seq.md; `headprune measure` writes the "
            "translations of a test set"
        )
    if data is not None:
        raise UsageError("--data goes with a fairseq checkpoint")
    with needing("translating needs the package ctranslate2", install="pip install ctranslate2"):
        from headprune.ctranslate2_engine import load_engine

    exported = ExportedModel.load(folder)
    processing = None
    if exported.text is not None:
        processing = TextProcessing(
            source_lang=exported.source_lang,
            target_lang=exported.target_lang,
            tokenizer=exported.text["tokenizer"],
            bpe=str(exported.text["bpe"]),
            file=folder / str(exported.text["file"]),
            truecaser=folder / truecaser if (truecaser := exported.text.get("truecaser")) else None,
            full_codes=exported.text.get("full_codes", False),
        )
    return load_engine(folder, exported, settings), processing


def _load_checkpoint(
    path: Path, settings: EngineSettings, *, data: Path | None
) -> tuple[Engine, TextProcessing | None]:
    """The model of a checkpoint in fairseq, and its text processing if prep.json describes it."""
    from data_prep.lib.text import TextProcessing
    from headprune.errors import needing

    with needing("translating with a checkpoint needs fairseq"):
        from fairseq_plugin.checkpoints import Checkpoint
        from fairseq_plugin.engine import load_engine
        from fairseq_plugin.loading import trained_on

    checkpoint = Checkpoint.load(path)
    data = data or trained_on(checkpoint)
    engine, (source_lang, target_lang) = load_engine(checkpoint, data, settings)
    processing = TextProcessing.of_preparation(
        data, source_lang=source_lang, target_lang=target_lang
    )
    return engine, processing
