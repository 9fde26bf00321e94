"""transformers chooses tokenizers, prompts and pipelines for pruned models as for unpruned ones."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PreTrainedModel,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperTokenizer,
    pipeline,
)

import hf_plugin
from headprune import select
from tests.hf_plugin.processes import run

TEXT = "a  b ①"


@pytest.fixture(scope="module")
def unpruned_and_pruned(tmp_path_factory) -> tuple[Path, Path]:
    """Folders of a umT5 whose tokenizer class, T5Tokenizer, transformers replaces by another."""
    whole, pruned = (tmp_path_factory.mktemp(name) for name in ("whole", "pruned"))
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=60, special_tokens=special, unk_token="<unk>")
    tokenizer.train_from_iterator(["a b c d e 1 fine"] * 9, trainer)
    sizes = {"vocab_size": 60, "d_model": 16, "d_kv": 4, "d_ff": 16}
    model = AutoModel.from_config(AutoConfig.for_model("umt5", **sizes, num_layers=2, num_heads=4))
    for folder in (whole, pruned):
        if folder == pruned:
            hf_plugin.prune(model, half_of(model))
        model.save_pretrained(folder)
        tokenizer.save(str(folder / "tokenizer.json"))
        config = {"tokenizer_class": "T5Tokenizer", "unk_token": "<unk>"}
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return whole, pruned


def half_of(model: PreTrainedModel):
    return select.at_random(hf_plugin.head_plan(model).units, percent=50, seed=1)


def test_the_tokenizer_is_that_of_the_unpruned_model(unpruned_and_pruned) -> None:
    whole, pruned = map(AutoTokenizer.from_pretrained, unpruned_and_pruned)
    assert type(pruned) is type(whole)
    assert pruned.tokenize(TEXT) == whole.tokenize(TEXT) == list("▁a▁▁b▁1")


@pytest.mark.slow
def test_the_tokenizer_without_headprune(unpruned_and_pruned) -> None:
    code = f"""
from transformers import AutoTokenizer
print(*AutoTokenizer.from_pretrained(folder, trust_remote_code=True).tokenize({TEXT!r}), sep="")
"""
    done = run(code, unpruned_and_pruned[1], blocked=True)
    assert done.stdout == "▁a▁▁b▁1\n", done.stderr


LETTERS = 256
NAMES = ("endoftext", "startoftranscript", "en", "transcribe", "startofprev", "notimestamps")
TOKENS = {name: LETTERS + number for number, name in enumerate(NAMES)}


@pytest.fixture(scope="module")
def whisper() -> WhisperForConditionalGeneration:
    torch.manual_seed(0)
    end, start = TOKENS["endoftext"], TOKENS["startoftranscript"]
    config = WhisperConfig(
        vocab_size=LETTERS + len(TOKENS) + 1501,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=8,
        decoder_ffn_dim=8,
        num_mel_bins=8,
        max_source_positions=50,
        max_target_positions=64,
        pad_token_id=end,
        bos_token_id=end,
        eos_token_id=end,
        decoder_start_token_id=start,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = WhisperForConditionalGeneration(config).eval()
    settings = {
        "no_timestamps_token_id": TOKENS["notimestamps"],
        "is_multilingual": True,
        "lang_to_id": {"<|en|>": TOKENS["en"]},
        "task_to_id": {"transcribe": TOKENS["transcribe"]},
        "prev_sot_token_id": TOKENS["startofprev"],
    }
    for name, value in settings.items():
        setattr(model.generation_config, name, value)
    for name, weights in model.named_parameters():
        if "embed_positions" not in name:
            weights.data.normal_(std=0.3)
    return model


def test_whisper_continues_a_prompt(whisper) -> None:
    pruned = hf_plugin.prune(copy.deepcopy(whisper), half_of(whisper))
    given = {
        "input_features": torch.randn(1, 8, 100),
        "language": "en",
        "prompt_ids": torch.tensor([TOKENS["startofprev"], 9, 8]),
        "max_new_tokens": 4,
    }
    with hf_plugin.masked(whisper, hf_plugin.plan(pruned)):
        masked = whisper.generate(**given)
    assert pruned.generate(**given).tolist() == masked.tolist()


def test_a_pipeline_transcribes(whisper) -> None:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(letters)}
    vocabulary |= {f"<|{name}|>": number for name, number in TOKENS.items()}
    transcribe = pipeline(
        "automatic-speech-recognition",
        model=hf_plugin.prune(copy.deepcopy(whisper), half_of(whisper)),
        tokenizer=WhisperTokenizer(vocab=vocabulary, merges=[]),
        feature_extractor=WhisperFeatureExtractor(feature_size=8, n_fft=400, chunk_length=1),
        device="cpu",
    )
    assert transcribe.type == "seq2seq_whisper"
    sound = torch.randn(8000).numpy()
    options = {"language": "en", "max_new_tokens": 5}
    assert isinstance(transcribe(sound, generate_kwargs=options)["text"], str)
