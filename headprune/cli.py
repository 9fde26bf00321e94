"""The command ``headprune``. Each subcommand loads its libraries when it runs, not before."""

from __future__ import annotations

import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from headprune import select
from headprune.changes_cli import app as changes_app
from headprune.compare_cli import app as compare_app
from headprune.counts import parse_counts
from headprune.errors import DataError, HeadpruneError, UsageError, needing
from headprune.files import disk_problem, flush_standard_output, require_standard_output
from headprune.form import Form
from headprune.glue_cli import app as glue_app
from headprune.plan import COMPONENTS, MOST_HEADS, HeadPlan, Shape
from headprune.report.cli import app as report_app
from headprune.scores import HeadScores
from headprune.scores.names import keep_of
from headprune.scores_cli import app as scores_app
from headprune.scores_cli import refuse
from headprune.translate_cli import app as translate_app
from headprune.version import __version__

if TYPE_CHECKING:
    from fairseq_plugin.checkpoints import Checkpoint
    from hf_plugin.folders import Folder

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Remove attention heads from Transformers, and measure what that costs.\n\n"
    "Components are ES (encoder self-attention), ED (encoder-decoder attention) and DS (decoder "
    "self-attention). Layer 0 is next to the embeddings. Heads are numbered as in the unpruned "
    "model.",
)

BASE_SHAPE = dict.fromkeys(COMPONENTS, (8,) * 6)


class Best(StrEnum):
    """Which scores are good."""

    high = "high"
    low = "low"


class Target(StrEnum):
    """What a model is exported to."""

    fairseq = "fairseq"
    ctranslate2 = "ctranslate2"
    onnx = "onnx"
    transformers = "transformers"


def main() -> None:
    """Run the command; the user's mistakes, and what the disk refuses, end it with one line."""
    try:
        try:
            app(prog_name="headprune")
        finally:
            flush_standard_output()
    except HeadpruneError as error:
        _fail(str(error), error.exit_status)
    except UnicodeEncodeError as error:
        _fail(f"standard output: {error.object[error.start : error.end]!r} is no valid text", 1)
    except Exception as error:
        reason = disk_problem(error)
        if reason is None:
            raise
        name = getattr(error, "filename", None)
        _fail(f"{name or 'standard output, or a file'}: cannot write ({reason})", 1)


def _fail(message: str, status: int) -> NoReturn:
    print(f"error: {' '.join(message.splitlines())}", file=sys.stderr)
    sys.exit(status)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"headprune {__version__}")
        raise typer.Exit


@app.command()
def plan(
    percent: Annotated[
        float | None, typer.Option(help="Prune this share of all heads, at random.")
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            help="Keep so many heads of a component, at random: ES=14 over all its layers, or "
            "ES=888444 per layer, one digit a layer (ES=16,16,12,8,4,4 where there are ten or "
            "more). Repeatable; components not named keep all."
        ),
    ] = None,
    prune: Annotated[
        list[str] | None,
        typer.Option(
            help="Prune all heads of these layers: 'top 3 + bottom 3', 'middle 2', 'odd', 'even' "
            "or layer numbers '0,2-4'; for one component 'ES=top 3'. Repeatable."
        ),
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(
            help="Score file (JSON): with --percent or --keep, the heads with the best scores "
            "stay instead of random ones."
        ),
    ] = None,
    best: Annotated[
        Best | None,
        typer.Option(
            help="Whether high or low scores are good; goes with --scores.",
            show_default="high; low for entropy and alone",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of the random choice.", show_default="1")
    ] = None,
    at_least: Annotated[
        int | None,
        typer.Option(
            help="Heads that every layer keeps.",
            show_default="0; with --scores 1, unless --keep gives a number for each layer",
        ),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            help="Heads of the unpruned model: ES=8x6 is six layers of eight. Repeatable. "
            "Default: Transformer-Base, ES=8x6 ED=8x6 DS=8x6."
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Model to take the shape from, and the heads left: a fairseq checkpoint or a "
            "Hugging Face folder."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Plan file (default: standard output).")
    ] = None,
) -> None:
    """Choose the heads to keep and write them as a plan (JSON).

    Give one of --percent, --keep and --prune. The same options give the same plan everywhere.

    Examples:

      headprune plan --percent 75 --seed 1 -o plan.json

      headprune plan --keep ES=888444 --keep ED=444888 --keep DS=888444 -o plan.json

      headprune plan --shape ES=12x12 --prune 'top 3 + bottom 3' -o plan.json

      headprune plan --scores gradient.json --percent 50 -o plan.json
    """
    if [percent is not None, bool(keep), bool(prune)].count(True) != 1:
        raise UsageError("give one of --percent, --keep and --prune")
    if prune and at_least:
        raise UsageError("--at-least goes with --percent or --keep: --prune empties whole layers")
    if shape and model:
        raise UsageError("give --shape or --model, not both")
    if scores and (prune or shape):
        raise UsageError("--scores goes with --percent or --keep, and brings the shape along")
    if seed is not None and (scores or prune):
        raise UsageError("--seed goes with a random choice: --scores and --prune draw no heads")
    if best and not scores:
        raise UsageError("--best goes with --scores, the file that says what the best heads are")
    loaded = _load_model(model) if model else None
    within = loaded.plan if loaded else None
    if scores:
        ranked = HeadScores.load(scores)
        if loaded and ranked.fingerprint and ranked.fingerprint != loaded.fingerprint:
            raise DataError(
                f"{scores}: scores of other weights than those of {model}; score this model, or "
                "leave --model out"
            )
        chosen = select.by_score(
            ranked,
            percent=percent,
            per_layer=_parse_keep(keep, ranked.heads) if keep else None,
            keep=best.value if best else keep_of(ranked.name),
            at_least=at_least,
            within=within,
        )
        _write_plan(chosen, output)
        return
    heads: Shape = within.heads if within else _parse_shape(shape) if shape else BASE_SHAPE
    if prune:
        if within is not None and not within.is_full:
            raise UsageError(f"{model}: has pruned heads already; --prune takes an unpruned model")
        chosen = select.by_location(heads, prune=_parse_prune(prune))
    else:
        chosen = select.at_random(
            heads,
            seed=1 if seed is None else seed,
            percent=percent,
            keep=_parse_keep(keep, heads) if keep else None,
            at_least=at_least or 0,
            within=within,
        )
    _write_plan(chosen, output)


def _write_plan(chosen: HeadPlan, output: Path | None) -> None:
    if output is None:
        require_standard_output()
        print(chosen.to_json(indent=1))
        return
    chosen.save(output)
    print(f"{output}: {chosen} ({chosen.percent_pruned:.1f}% of heads pruned)")


@app.command()
def show(
    path: Annotated[
        Path, typer.Argument(help="A plan file, a fairseq checkpoint or a Hugging Face folder.")
    ],
    width: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="For a plan: width of the model (a model has its own).",
            show_default="64 for each head",
        ),
    ] = None,
    feed_forward: Annotated[
        int | None,
        typer.Option(min=0, help="For a plan: inner width.", show_default="4 x width"),
    ] = None,
    vocabulary: Annotated[
        int | None,
        typer.Option(min=0, help="For a plan: size of the vocabulary.", show_default="32000"),
    ] = None,
    length: Annotated[int, typer.Option(min=1, help="Tokens of a sentence, for the FLOPs.")] = 30,
) -> None:
    """Show which heads are kept, and what that saves.

    For a plan, parameters and FLOPs are those of a Transformer of the given width, a head being
    width / heads wide; for a model, its own.
    """
    from headprune.cost import Sizes
    from headprune.report.plan_view import show_plan

    require_standard_output()
    if not path.is_dir() and not _looks_like_checkpoint(path):
        plan = HeadPlan.load(path)
        heads = {name: layers[0] for name, layers in plan.heads.items()}
        if width is None:  # as Transformer-Base and -Big, BERT-base and -large have it
            width = 64 * max(heads.values())
        if feed_forward is None:
            feed_forward = 4 * width
        for name, number in heads.items():
            if width % number:
                raise UsageError(f"{name}: width {width} does not divide into {number} heads")
        sizes = Sizes(
            encoder_width=width,
            decoder_width=width,
            encoder_feed_forward=feed_forward,
            decoder_feed_forward=feed_forward,
            encoder_head_dim=width // heads.get("ES", 1),
            decoder_head_dim=width // heads.get("DS", heads.get("ED", 1)),
            vocabulary=32000 if vocabulary is None else vocabulary,
        )
        show_plan(plan, sizes, length=length)
        return
    refuse(f"{path} is a model", width=width, feed_forward=feed_forward, vocabulary=vocabulary)
    model = _load_model(path)
    show_plan(
        model.plan,
        model.sizes,
        length=length,
        parameters=(model.unpruned_parameters, model.parameters),
        form=model.form,
    )


@app.command()
def prune(
    model: Annotated[
        Path,
        typer.Argument(help="A fairseq checkpoint of a Transformer, or a Hugging Face folder."),
    ],
    plan: Annotated[Path, typer.Option(help="The plan, from `headprune plan`.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Checkpoint, or folder, to write.")
    ],
    form: Annotated[
        Form,
        typer.Option(
            help="remove: the weights are gone; mask: they stay, outputs times 0 (fairseq); "
            "uniform: attention scores times 0 (Hugging Face), as in the first version (October "
            "2020) of the paper's BERT code."
        ),
    ] = Form.remove,
) -> None:
    """Prune the heads of a trained model, without training.

    A pruned checkpoint translates with fairseq-generate --user-dir fairseq_plugin, and trains on
    with fairseq-train --finetune-from-model. A pruned folder is read by transformers' Auto classes
    after `import hf_plugin`; its tokenizer comes along.
    """
    loaded = _load_model(model)
    pruned = loaded.prune(HeadPlan.load(plan), form=form.value)
    pruned.save(output)
    kept = pruned.plan
    print(
        f"{output}: {kept} ({kept.percent_pruned:.1f}% of heads pruned, "
        f"{loaded.parameters:,} -> {pruned.parameters:,} parameters)"
    )


@app.command()
def export(
    model: Annotated[
        Path,
        typer.Argument(
            help="A checkpoint of fairseq's Transformer, head-pruned or not; for onnx and "
            "transformers a Hugging Face folder."
        ),
    ],
    to: Annotated[
        Target,
        typer.Option(
            help="fairseq: stock fairseq's transformer; ctranslate2: its fast runtime; onnx: "
            "BERT and its relatives; transformers: its own classes, in every version."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="File, or folder, to write.")],
    quantization: Annotated[
        str | None,
        typer.Option(
            help="For ctranslate2, the weights' type: int8, int8_float32, int8_float16, "
            "int8_bfloat16, int16, float16, bfloat16 or float32 (default)."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="For ctranslate2, the binarised data, or a folder with the dictionaries (default: "
            "what the model was trained on)."
        ),
    ] = None,
) -> None:
    """Write a model so that other tools load it.

    --to fairseq brings removed heads back as zeros: stock fairseq loads the result without the
    plugin, and it translates as the pruned model does, at the unpruned model's size and speed.

    --to ctranslate2 writes a folder for `headprune translate` and the library itself. Layers are
    filled up with zeros to the most heads that a layer of their stack has. It is written only if
    its scores are fairseq's, on sentences of the data's valid or test set.

    --to onnx writes a folder with model.onnx, for batches and sentences of any size. It is written
    only if onnxruntime computes with it what the model does.

    --to transformers does with a Hugging Face folder what --to fairseq does with a checkpoint:
    zeros in place of the pruned heads. It is written only if its outputs are the pruned model's.
    """
    if to is not Target.ctranslate2 and (quantization or data):
        raise UsageError("--quantization and --data go with --to ctranslate2")
    if to in (Target.onnx, Target.transformers) and not model.is_dir():
        raise UsageError(f"{model}: not a folder; --to {to.value} takes a Hugging Face folder")
    if to is Target.transformers:
        with needing("exporting to transformers needs transformers"):
            from hf_plugin.transformers_export import export_to_transformers
        print(f"{output}: {export_to_transformers(model, output)}")
        return
    if to is Target.onnx:
        with needing(
            "exporting to ONNX needs transformers, onnx, onnxscript and onnxruntime",
            install="pip install transformers onnx onnxscript onnxruntime",
        ):
            from hf_plugin.onnx_export import export_to_onnx
        print(f"{output}: {export_to_onnx(model, output)}")
        return
    checkpoint = _load_checkpoint(model)
    if to is Target.ctranslate2:
        with needing("this needs the package ctranslate2", install="pip install ctranslate2"):
            from fairseq_plugin.ctranslate2_export import export_to_ctranslate2
        written = export_to_ctranslate2(checkpoint, output, data=data, quantization=quantization)
        print(f"{output}: {written}")
        return
    checkpoint.export_to_fairseq().save(output)
    print(f"{output}: a checkpoint of stock fairseq's transformer")


for part in (report_app, glue_app, changes_app, scores_app, compare_app, translate_app):
    app.registered_commands += part.registered_commands


def _load_model(path: Path) -> Checkpoint | Folder:
    """A fairseq checkpoint, or what is in a Hugging Face folder."""
    if not path.is_dir():
        return _load_checkpoint(path)
    if not (path / "config.json").is_file():
        raise DataError(f"{path}: a folder without config.json; give a model's folder")
    with needing(f"{path}: reading Hugging Face folders needs transformers"):
        from hf_plugin.folders import Folder
    return Folder.load(path)


def _load_checkpoint(path: Path) -> Checkpoint:
    if path.is_dir():
        raise DataError(f"{path}: a folder; give a fairseq checkpoint file")
    with needing(f"{path}: reading checkpoints needs the fairseq plugin"):
        from fairseq_plugin.checkpoints import Checkpoint
    return Checkpoint.load(path)


def _looks_like_checkpoint(path: Path) -> bool:
    """Whether the file is binary as torch.save writes it: a zip file, or a pickle."""
    try:
        with path.open("rb") as file:
            return file.read(2).startswith((b"PK", b"\x80"))
    except OSError as error:
        raise DataError(f"{path}: cannot read ({error.strerror})") from None


def _assignments(items: list[str], what: str) -> dict[str, str]:
    """``["ES=1", "DS=2"]`` as a mapping."""
    result: dict[str, str] = {}
    for item in items:
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not value:
            raise UsageError(f"{what} {item!r}: write a component and a value, as in ES=8")
        if name in result:
            raise UsageError(f"{what}: {name} is given twice")
        result[name] = value
    return result


def _parse_shape(items: list[str]) -> dict[str, tuple[int, ...]]:
    shape = {}
    for name, text in _assignments(items, "--shape").items():
        if match := re.fullmatch(r"([0-9]{1,99})x([0-9]{1,99})", text):
            heads, layers = int(match[1]), int(match[2])
            if max(heads, 1) * layers > MOST_HEADS:
                raise UsageError(f"--shape {name}={text}: more than {MOST_HEADS:,} heads")
            shape[name] = (heads,) * layers
        else:
            shape[name] = parse_counts(text, component=name)
    return shape


def _parse_keep(items: list[str], heads: Shape) -> dict[str, int | str]:
    """As many digits as there are layers are counts per layer; a shorter number is a total."""
    keep: dict[str, int | str] = {}
    for name, text in _assignments(items, "--keep").items():
        layers = heads.get(name, ())
        short = len(text) != len(layers) and len(text) <= len(str(sum(layers)))
        total = short and text.isdecimal()
        keep[name] = int(text) if total else text
    return keep


def _parse_prune(items: list[str]) -> str | dict[str, str]:
    if len(items) == 1 and "=" not in items[0]:
        return items[0]
    return _assignments(items, "--prune")


if __name__ == "__main__":
    main()
