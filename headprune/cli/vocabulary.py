"""The command `headprune vocabulary`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from headprune.backends import backend_of
from headprune.cli.options import kinds_of_models
from headprune.errors import UsageError
from headprune.vocabulary import TrimsVocabularies, is_table, read_lines

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.command()
def vocabulary(
    model: Annotated[Path, typer.Argument(help=f"The model: {kinds_of_models()}.")],
    text: Annotated[
        list[Path],
        typer.Option(
            help="File of text whose tokens are kept, with one sentence a line, or a table (.csv, "
            ".tsv, .jsonl or .parquet); repeatable. For a translation model give text of both "
            "languages."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write.")],
    column: Annotated[
        list[str] | None,
        typer.Option(help="Column of text in tables; repeatable. Default: text."),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(
            help="Held-out text, in which unknown tokens are counted before and after trimming. "
            "For a checkpoint they are counted with both dictionaries; only the count for the "
            "text's own language matters."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="For a checkpoint: the folder of its dictionaries. Default: the data that it was "
            "trained on."
        ),
    ] = None,
) -> None:
    """Remove the tokens that a text never uses from a model and its tokenizer.

    Special tokens, language codes, and the single characters of the text are kept. Texts of kept
    tokens alone have the same tokens and the same outputs as before; the folder is written only if
    that was seen on the text.

    Hugging Face folders: tokenizer, embeddings and output layer, of tokenizers with a
    tokenizer.json (WordPiece, byte-pair encoding, unigram models) and of Marian and M2M100. fairseq
    checkpoints: the new folder holds model.pt and the dictionaries, for fairseq-preprocess
    --srcdict and --tgtdict, and for fairseq-generate.

    Example:

      headprune vocabulary xlm-roberta-finetuned --text train.csv --column review --check test.csv
      -o smaller
    """
    if column and not any(map(is_table, [*text, *([check] if check else [])])):
        raise UsageError("--column is for tables; plain text has no columns")
    backend = backend_of(model)
    if not isinstance(backend, TrimsVocabularies):
        raise UsageError(f"{model}: the vocabulary of such models cannot be trimmed")

    def texts_of(path: Path) -> list[str]:
        if is_table(path):
            return list(backend.texts_of_table(path, tuple(column or ["text"])))
        return read_lines([path])

    lines = [line for path in text for line in texts_of(path)]
    held_out = [] if check is None else texts_of(check)
    trimmed = backend.trim_vocabulary(model, output, text=lines, held_out=held_out, data=data)
    for name, (before, after) in trimmed.sizes.items():
        print(f"{name}: {before:,} -> {after:,} entries")
    before, after = trimmed.parameters
    print(f"{output}: {before:,} -> {after:,} parameters ({(after - before) / before:+.1%})")
    for name, (old, new) in trimmed.held_out.items():
        side = f" with {name}" if len(trimmed.held_out) > 1 else ""
        print(
            f"{check}{side}: {old.tokens:,} -> {new.tokens:,} tokens, "
            f"unknown: {old.unknown_share:.2%} -> {new.unknown_share:.2%}"
        )
    if len(trimmed.held_out) == 1 and new.unknown > old.unknown:
        print(
            f"warning: {check}: more tokens are unknown than before; give more --text",
            file=sys.stderr,
        )
