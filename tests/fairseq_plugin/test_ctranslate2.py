"""Export to CTranslate2, and `headprune translate`: the same scores and texts as fairseq's."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.data.language_pair_dataset import collate
from fairseq.sequence_generator import SequenceGenerator
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from data_prep.lib.text import TextProcessing
from fairseq_plugin.checkpoints import Checkpoint
from headprune import DataError, HeadPlan, PruningPlan, UsageError, select
from headprune.cli.translate import app
from headprune.cost import forward_flops
from headprune.exported import ExportedModel
from headprune.speed.exported import exported_forward_pass
from headprune.speed.forward_pass import Conditions
from tests.fairseq_plugin.conftest import ROOT, generate, run, train
from tests.fairseq_plugin.models import SHAPE, build, dictionary
from tests.fairseq_plugin.test_model import NO_HEADS_HERE_AND_THERE, NOTHING_LEFT, plans
from tests.fairseq_plugin.test_neurons_and_layers import (
    NO_LAYERS,
    NOTHING_LEFT_IN_LAYERS,
    RAGGED,
    SIZES,
)

ctranslate2 = pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")

from fairseq_plugin import ctranslate2_export, ctranslate2_spec  # noqa: E402
from fairseq_plugin.ctranslate2_export import export_to_ctranslate2  # noqa: E402
from fairseq_plugin.forced_scores import (  # noqa: E402
    Difference,
    Pair,
    ctranslate2_scores,
    fairseq_scores,
)

STYLES: dict[str, dict[str, Any]] = {
    "post-norm": {},
    "pre-norm": {"encoder_normalize_before": True, "decoder_normalize_before": True},
    "pre-norm encoder": {"encoder_normalize_before": True},
    "no final norm": {"decoder_normalize_before": True, "no_decoder_final_norm": True},
    "shared": {"share_all_embeddings": True},
    "learned positions": {"encoder_learned_pos": True, "decoder_learned_pos": True},
    "no positions": {"no_token_positional_embeddings": True},
    "embeddings": {"no_scale_embedding": True, "layernorm_embedding": True},
    "widths": {"encoder_embed_dim": 24},  # and so ED's keys and the encoder's heads are narrower
    **{name: {"activation_fn": name} for name in ("gelu", "gelu_accurate", "tanh")},
}


def model(plan: HeadPlan, *, form: str = "remove", seed: int = 0, **options: Any) -> Any:
    """A model in which no bias is zero and no norm is 1."""
    built = build(head_plan=plan.to_json(), head_form=form, seed=seed, **options).eval()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return built


def pairs(number: int = 20) -> list[Pair]:
    words = dictionary()
    generator = torch.Generator().manual_seed(0)

    def sentence() -> torch.Tensor:
        length = int(torch.randint(1, 12, (1,), generator=generator))
        tokens = torch.randint(words.unk(), len(words), (length,), generator=generator)
        return torch.cat([tokens, torch.tensor([words.eos()])])

    return [Pair(sentence(), sentence()) for _ in range(number)]


def convert(built: Any, folder: Path, *, quantization: str = "float32") -> Path:
    spec = ctranslate2_spec.make_spec(built)
    spec.validate()
    spec.optimize(quantization=quantization)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    spec.save(str(folder))
    return folder


def difference(built: Any, folder: Path) -> Difference:
    some = pairs()
    return Difference.between(fairseq_scores(built, some), ctranslate2_scores(folder, built, some))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ctranslate2") / "model"


@settings(max_examples=15, deadline=None)
@given(plan=plans, form=st.sampled_from(["mask", "remove"]), seed=st.integers(0, 99))
def test_scores_of_any_plan_are_fairseqs(plan: HeadPlan, form: str, seed: int, folder: Path):
    built = model(plan, form=form, seed=seed)
    assert difference(built, convert(built, folder)).largest < 1e-3


@pytest.mark.parametrize("plan", [HeadPlan.full(SHAPE), NO_HEADS_HERE_AND_THERE, NOTHING_LEFT])
@pytest.mark.parametrize("style", STYLES)
def test_scores_of_any_style_are_fairseqs(style: str, plan: HeadPlan, folder: Path):
    built = model(plan, **STYLES[style])
    assert difference(built, convert(built, folder)).largest < 1e-3


@pytest.mark.parametrize("plan", [RAGGED, NOTHING_LEFT_IN_LAYERS], ids=["ragged", "empty"])
@pytest.mark.parametrize("form", ["mask", "remove"])
def test_neurons_and_layers(form: str, plan: HeadPlan, folder: Path):
    built = model(plan, form=form, **SIZES)
    assert difference(built, convert(built, folder)).largest < 1e-3
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # NumPy's, on a division by zero
        convert(built, folder, quantization="int16")


def test_a_stack_without_layers_cannot_be_expressed():
    with pytest.raises(UsageError, match="needs a layer in the encoder, and all are pruned"):
        ctranslate2_spec.make_spec(build(head_plan=NO_LAYERS.to_json(), **SIZES))


def test_stock_fairseqs_transformer(folder: Path):
    built = build("transformer").eval()
    assert difference(built, convert(built, folder)).largest < 1e-3


def _has_vnni() -> bool:
    """Tell if the processor multiplies 8-bit numbers without saturating sums of 16 bits."""
    try:
        return "vnni" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


COARSER = 1 if _has_vnni() else 6
"""On processors without VNNI, 8-bit products are less exact (and int16 falls back to int8)."""


@pytest.mark.parametrize("quantization", ["int8", "int16", "float16", "bfloat16"])
@pytest.mark.parametrize("plan", [NO_HEADS_HERE_AND_THERE, NOTHING_LEFT])
def test_quantised_layers_without_heads(quantization: str, plan: HeadPlan, folder: Path):
    built = model(plan)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # NumPy's, on a division by zero
        convert(built, folder, quantization=quantization)
    assert difference(built, folder).largest < 0.2 * COARSER


@pytest.mark.parametrize("style", ["post-norm", "pre-norm"])
@pytest.mark.parametrize("form", ["mask", "remove"])
def test_beam_search_is_fairseqs(style: str, form: str, folder: Path):
    """The same hypotheses and scores, where fairseq does not have to force the end."""
    words, some, longest = dictionary(), pairs(30), 60
    samples = [{"id": n, "source": p.source, "target": p.target} for n, p in enumerate(some)]
    batch = collate(samples, pad_idx=words.pad(), eos_idx=words.eos())
    lengths = []
    for end_bonus in (0.06, 0.08, 0.1, 0.12):
        built = model(NO_HEADS_HERE_AND_THERE, form=form, **STYLES[style])
        with torch.no_grad():
            # Training makes padding improbable, and the end come at some time.
            decoder = built.decoder
            (decoder.layer_norm or decoder.layers[-1].final_layer_norm).bias += 1
            decoder.output_projection.weight[words.pad()] = -1
            decoder.output_projection.weight[words.eos()] += end_bonus
        generator = SequenceGenerator([built], words, beam_size=5, max_len_b=longest, min_len=0)
        found = dict(zip(batch["id"].tolist(), generator.generate([built], batch), strict=True))
        results = ctranslate2.Translator(str(convert(built, folder))).translate_batch(
            [[words[token] for token in pair.source[:-1].tolist()] for pair in some],
            beam_size=5,
            max_decoding_length=longest,
            min_decoding_length=0,
            suppress_sequences=[["<blank>"]],
            return_scores=True,
        )
        for number, result in enumerate(results):
            if max(len(hypothesis["tokens"]) for hypothesis in found[number]) >= longest:
                continue
            best = found[number][0]
            expected = [words[token] for token in best["tokens"][:-1].tolist()]
            assert result.hypotheses[0] == expected
            assert result.scores[0] == pytest.approx(best["score"].item(), abs=1e-4)
            lengths.append(len(expected))
    assert len(lengths) >= 20 and max(lengths) >= 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cross_self_attention": True, "no_cross_attention": True}, "--cross-self-attention"),
        ({"no_cross_attention": True}, "--no-cross-attention"),
        ({"adaptive_softmax_cutoff": "10,20"}, "--adaptive-softmax-cutoff"),
        ({"decoder_output_dim": 16}, "--decoder-output-dim"),
        ({"activation_fn": "linear"}, "--activation-fn linear"),
        ({"scale_attn": True}, "no place for decoder.layers.0.attn_ln"),
    ],
)
def test_what_cannot_be_expressed_is_refused(options: dict[str, Any], message: str):
    with pytest.raises(UsageError, match=message):
        ctranslate2_spec.make_spec(build(**options))


def test_padding_is_counted_and_an_even_plan_needs_none():
    uneven = HeadPlan(
        kept={"ES": [(0, 1, 2), (1,)], "ED": [(0,)] * 2, "DS": [(1,)] * 2}, heads=SHAPE
    )
    assert "6 heads for the 4 kept in the encoder (ES=31)." in str(ctranslate2_spec.padding(uneven))
    even = select.at_random(SHAPE, keep=dict.fromkeys(SHAPE, [2, 2]), seed=1)
    assert ctranslate2_spec.padding(even) is None
    # A layer that is gone needs no padding either.
    dropped = PruningPlan(
        kept={**even.kept, "ES": [(0, 1), ()], "EL": [(0,), ()]}, units={**SHAPE, "EL": (1, 1)}
    )
    assert ctranslate2_spec.padding(dropped) is None
    mixed = HeadPlan(kept={**even.kept, "ED": [(0,), (1,)]}, heads=SHAPE)
    assert "8 heads for the 6 kept in the decoder (ED=11 DS=22)" in str(
        ctranslate2_spec.padding(mixed)
    )


@pytest.fixture(scope="module")
def pruned(full: Path) -> Checkpoint:
    return Checkpoint.load(full).prune(NO_HEADS_HERE_AND_THERE)


def test_export_says_what_it_compared(pruned: Checkpoint, tmp_path: Path):
    export = export_to_ctranslate2(pruned, tmp_path / "model", quantization="int8")
    assert export.float32.largest < 1e-3 < export.quantized.largest < 0.5 * COARSER
    assert (export.pairs, export.origin) == (20, "the valid set")
    assert "in float32, by" in str(export) and "\npadding: " in str(export)
    described = json.loads((tmp_path / "model" / "headprune.json").read_text())
    assert described["text"] is None and described["quantization"] == "int8"
    assert HeadPlan.from_json(json.dumps(described["plan"])) == NO_HEADS_HERE_AND_THERE
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_random_tokens_where_there_are_only_dictionaries(
    pruned: Checkpoint, corpus: Path, tmp_path: Path
):
    data = tmp_path / "data"
    data.mkdir()
    for name in ("dict.en.txt", "dict.de.txt", "train.en-de.en.idx"):
        shutil.copy(corpus / name, data)  # the last one's name tells the languages
    export = export_to_ctranslate2(pruned, tmp_path / "model", data=data)
    assert export.origin == "random tokens" and export.float32.largest < 1e-3
    assert export.quantized is None


@pytest.mark.parametrize("older", [True, False])
def test_an_export_splits_text_as_its_checkpoint(
    older: bool, pruned: Checkpoint, corpus: Path, tmp_path: Path
):
    data = tmp_path / "data"
    data.mkdir()
    for name in ("dict.en.txt", "dict.de.txt", "train.en-de.en.idx"):
        shutil.copy(corpus / name, data)
    (data / "codes").write_text("#version: 0.2\nt h\n")
    facts = {"tokenizer": "moses", "bpe": "subword_nmt", "bpe_codes": "codes"}
    languages = {} if older else {"tokenizer_languages": {"en": "en", "de": "de"}}
    (data / "prep.json").write_text(json.dumps(facts | languages))
    export_to_ctranslate2(pruned, tmp_path / "model", data=data)
    of_data = TextProcessing.of_preparation(data, source_lang="en", target_lang="de")
    assert of_data is not None and of_data.full_codes is older
    found = ExportedModel.load(tmp_path / "model").text_processing(tmp_path / "model")
    assert found == replace(of_data, file=tmp_path / "model" / "bpe.codes")


@pytest.mark.slow
def test_stock_fairseqs_checkpoint_and_one_in_mask_form(stock: Path, tmp_path: Path):
    checkpoint = Checkpoint.load(stock)
    assert export_to_ctranslate2(checkpoint, tmp_path / "full").plan.is_full
    masked = checkpoint.prune(NO_HEADS_HERE_AND_THERE, form="mask")
    assert export_to_ctranslate2(masked, tmp_path / "mask").plan == NO_HEADS_HERE_AND_THERE
    whole = masked.export_to_fairseq()  # its options are plain values
    assert export_to_ctranslate2(whole, tmp_path / "whole").plan.is_full


@pytest.mark.parametrize("broken", ["head_dim", "padding"])
def test_a_wrong_conversion_is_noticed(
    broken: str, pruned: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if broken == "head_dim":
        wrong = partial(_without_head_dim, ctranslate2_spec.TransformerDecoderSpec)
        monkeypatch.setattr(ctranslate2_spec, "TransformerDecoderSpec", wrong)
    else:  # heads of zeros come first, though the weights of W_o stay
        right = ctranslate2_spec.uncut

        def shifted(tensor: Any, places: Any, *, units: int, unit_size: int, dim: int) -> Any:
            shift = units - len(places) if dim == 0 else 0
            moved = [place + shift for place in places]
            return right(tensor, moved, units=units, unit_size=unit_size, dim=dim)

        monkeypatch.setattr(ctranslate2_spec, "uncut", shifted)
    with pytest.raises(DataError, match="not exported: .* differ from fairseq's by up to"):
        export_to_ctranslate2(pruned, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def _without_head_dim(kind: Any, *arguments: Any, head_dim: int, **options: Any) -> Any:
    return kind(*arguments, **options)


def test_export_mistakes(pruned: Checkpoint, corpus: Path, tmp_path: Path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("")
    data = tmp_path / "data"
    data.mkdir()
    with pytest.raises(DataError, match="taken: exists already"):
        export_to_ctranslate2(pruned, tmp_path / "taken")
    with pytest.raises(UsageError, match="data: the checkpoint does not name its languages"):
        export_to_ctranslate2(pruned, tmp_path / "model", data=data)
    (data / "train.en-de.en.idx").write_text("")
    with pytest.raises(DataError, match="data: no dictionary of the model's languages"):
        export_to_ctranslate2(pruned, tmp_path / "model", data=data)
    with pytest.raises(UsageError, match="--quantization int4: give one of int8, "):
        export_to_ctranslate2(pruned, tmp_path / "model", quantization="int4")
    for language in ("en", "de"):
        words = (corpus / f"dict.{language}.txt").read_text().splitlines()
        (data / f"dict.{language}.txt").write_text("\n".join(words[:-8]) + "\n")
    with pytest.raises(DataError, match="the checkpoint's dictionary"):
        export_to_ctranslate2(pruned, tmp_path / "model", data=data)
    moved = Checkpoint.load(pruned.path)  # of its own, to be changed
    moved.state["cfg"]["task"]["data"] = str(tmp_path / "gone")
    with pytest.raises(UsageError, match="trained on .*gone, which is not there; give --data"):
        ctranslate2_export.export_to_ctranslate2(moved, tmp_path / "model")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "taken"]


@pytest.fixture(scope="module", params=["--truecase", "--bpe=sentencepiece"])
def numbers(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A prepared corpus of number expressions, and a checkpoint trained on it."""
    folder = tmp_path_factory.mktemp("numbers")
    subprocess.run(
        [
            *("bash", ROOT / "data_prep" / "numbers.sh", "--out", folder / "data"),
            *("--train=3000", "--valid=40", "--test=40", "--merges=200", "--workers=1"),
            *(request.param, "--python", sys.executable),
        ],
        check=True,
        capture_output=True,
    )
    train(
        *(folder / "data" / "bin", folder / "save", "--arch=transformer_headpruned_tiny"),
        *("--es-heads=20", "--ed-heads=12", "--ds-heads=03", "--max-tokens=1500", "--lr=5e-3"),
        *("--encoder-normalize-before", "--decoder-normalize-before"),
        epochs=6,
    )
    return folder / "data", folder / "save" / "checkpoint_last.pt"


@pytest.mark.slow
def test_translations_are_fairseq_generates(numbers: tuple[Path, Path], tmp_path: Path):
    """From raw text to raw text, on the command line."""
    data, checkpoint = numbers
    facts = json.loads((data / "prep.json").read_text())
    out = generate(
        *(data / "bin", "--path", checkpoint, "--beam=5", "--max-len-b=200"),
        *("--required-batch-size-multiple=1", *facts["generate_options"]),
    )
    expected = {int(n): text for n, text in re.findall(r"^D-(\d+)\t\S+\t(.*)$", out, flags=re.M)}
    assert len(expected) == 40

    model = tmp_path / "model"
    told = run("headprune", "export", checkpoint, "--to=ctranslate2", "-o", model)
    assert re.search(
        rf"^{re.escape(str(model))}: ES=20 ED=12 DS=03, float32; log-probabilities of tokens "
        r"differ from fairseq's by at most [\d.]+e-0\d in float32 \(40 pairs of the valid set\)$",
        told,
        flags=re.M,
    ), told
    source = data / "raw" / f"test.{facts['source_lang']}"
    translated = run("headprune", "translate", model, text=source.read_text())
    assert translated.splitlines() == [expected[number] for number in range(40)]

    straight = translate(checkpoint, "--batch-size=11", text=source.read_text())
    assert straight.stdout.splitlines() == [expected[number] for number in range(40)]
    assert straight.stderr == ""

    output = tmp_path / "translated"
    told = run(
        *("headprune", "translate", model, "--tokens", "--input"),
        *(data / "bpe" / source.name, "--output", output, "--batch-size=7", "--threads=2"),
    )
    assert told == ""
    found = dict(re.findall(r"^H-(\d+)\t\S+\t(.*)$", generate_tokens(data, checkpoint), flags=re.M))
    assert output.read_text().splitlines() == [found[str(number)] for number in range(40)]


def generate_tokens(data: Path, checkpoint: Path) -> str:
    return generate(
        *(data / "bin", "--path", checkpoint, "--beam=5", "--max-len-b=200"),
        "--required-batch-size-multiple=1",
    )


@pytest.fixture(scope="module")
def exported(pruned: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that does not know how its text was prepared."""
    folder = tmp_path_factory.mktemp("exported") / "model"
    export_to_ctranslate2(pruned, folder)
    return folder


def test_the_cost_of_an_export_is_that_of_all_heads_that_it_computes(
    exported: Path, pruned: Checkpoint, full: Path, tmp_path: Path
):
    conditions = Conditions(batch=2, length=6, threads=1, device="cpu")
    timed = exported_forward_pass(exported, conditions)
    assert [len(result.tokens) for result in timed.run()] == [6, 6]
    checkpoint = Checkpoint.load(full)
    heads = ctranslate2_spec.stack_heads(pruned.plan)
    even = select.at_random(
        pruned.plan.heads,
        keep={
            name: [heads["encoder" if name == "ES" else "decoder"]] * len(layers)
            for name, layers in pruned.plan.heads.items()
        },
        seed=1,
    )
    padded = checkpoint.prune(even)
    assert timed.parameters == padded.parameters
    assert timed.flops == 2 * forward_flops(padded.plan, padded.sizes, source=6, target=6)
    later = tmp_path / "later"
    shutil.copytree(exported, later)
    content = json.loads((later / "headprune.json").read_text())
    content["sizes"]["further"] = 1
    (later / "headprune.json").write_text(json.dumps(content))
    assert exported_forward_pass(later, conditions).flops == timed.flops
    export_to_ctranslate2(checkpoint.prune(pruned.plan, form="mask"), tmp_path / "masked")
    masked = exported_forward_pass(tmp_path / "masked", conditions)
    assert (masked.parameters, masked.flops) == (timed.parameters, timed.flops)


@pytest.mark.parametrize("style", ["shared", "learned positions", "no positions", "embeddings"])
def test_the_parameters_of_an_export_are_those_of_the_model(style: str):
    built = model(HeadPlan.full(SHAPE), **STYLES[style])
    padding = 0
    if style == "learned positions":  # which fairseq has for padding too, and never reads
        padding = sum(
            (side.embed_positions.padding_idx + 1) * side.embed_positions.embedding_dim
            for side in (built.encoder, built.decoder)
        )
    number = sum(parameter.numel() for parameter in built.parameters())
    assert ctranslate2_spec.parameters_of(built) == number - padding


def translate(*arguments: str | Path, text: str | bytes = "") -> Result:
    # More threads would wait for the cores of other tests.
    return CliRunner().invoke(app, [*map(str, arguments), "--threads=1"], input=text)


def test_translate_takes_tokens_where_nothing_else_is_known(exported: Path):
    alone = [translate(exported, text=f"{line}\n").stdout for line in ("w1 w2", "w3 new w4 w5")]
    assert all(line.strip() for line in alone)
    together = translate(exported, "--batch-size=1", text="w1 w2\n\n \nw3 new w4 w5")
    assert together.exit_code == 0
    assert together.stdout == f"{alone[0]}\n\n{alone[1]}"
    assert "1 of 4 lines have words that the model does not know ('new')" in together.stderr
    assert translate(exported, text="").output == ""


def test_translate_cuts_what_is_too_long(exported: Path):
    done = translate(exported, text="w1\n" + "w1 w2 " * 600)
    assert done.exit_code == 0 and len(done.stdout.splitlines()) == 2
    assert done.stderr == "warning: line 2: 1200 tokens, cut to the model's 1023\n"


def test_translate_mistakes(exported: Path, tmp_path: Path):
    (tmp_path / "latin").write_bytes("w1\nw\xfc\n".encode("latin-1"))
    broken = tmp_path / "broken"
    shutil.copytree(exported, broken)
    (broken / "model.bin").write_bytes(b"")
    mistakes: list[tuple[list[str | Path], type[Exception], str]] = [
        ([tmp_path], DataError, "or one from `headprune export --to ctranslate2`"),
        ([exported, "--data", tmp_path], UsageError, "--data goes with a fairseq checkpoint"),
        ([broken], DataError, "broken: CTranslate2 cannot load it"),
        ([exported, "--raw"], UsageError, "does not know how its text was prepared"),
        ([exported, "--input", tmp_path / "none"], DataError, "none: no such file"),
        ([exported, "--input", tmp_path / "latin", "-o", tmp_path / "out"], DataError, "line 2 "),
    ]
    for arguments, kind, message in mistakes:
        error = translate(*arguments).exception
        assert isinstance(error, kind) and message in str(error), (arguments, error)
    assert not (tmp_path / "out").exists()


def test_options_of_another_target(full: Path, tmp_path: Path):
    from headprune.cli import app as headprune

    for arguments, message in (
        (["--to=fairseq", "--quantization=int8"], "go with --to ctranslate2"),
        (["--to=onnx"], "--to onnx takes a Hugging Face folder"),
    ):
        done = CliRunner().invoke(headprune, ["export", str(full), *arguments, f"-o={tmp_path}/x"])
        assert isinstance(done.exception, UsageError) and message in str(done.exception)
