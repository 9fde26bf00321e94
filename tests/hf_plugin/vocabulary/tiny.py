"""Tiny models with tokenizers that were trained on a few sentences."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    BertTokenizer,
    M2M100Config,
    M2M100Tokenizer,
    MarianTokenizer,
    MBartConfig,
    MBartTokenizer,
    RobertaTokenizer,
    XLMRobertaTokenizer,
)

from tests.hf_plugin.models import config_of

_WORDS = [
    *("the", "old", "man", "sees", "a", "dog", "cat", "likes", "hears", "red", "house", "houses"),
    *("housing", "unbelievable", "believe", "lower", "lowest", "newest", "widest", "higher"),
    *("running", "runner", "jumps", "jumped", "over", "lazy", "quick", "brown", "fox", "zebra"),
]


def sentences(seed: int, *, words: list[str] = _WORDS, number: int = 60) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(words, k=5)) for _ in range(number)]


ALL = sentences(1)
SMALL = sentences(2, words=_WORDS[:18], number=20)
"""Text of half of the words."""


def _save(model: Any, tokenizer: Any, folder: Path) -> Path:
    torch.manual_seed(4)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter.normal_(std=0.2)
        padding = model.get_input_embeddings().padding_idx
        if padding is not None:
            model.get_input_embeddings().weight[padding] = 0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def bert(folder: Path) -> Path:
    trained = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    trained.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    trained.train_from_iterator(
        ALL, trainers.WordPieceTrainer(vocab_size=101, special_tokens=special)
    )
    vocabulary = trained.get_vocab()
    tokenizer = BertTokenizer(vocab=vocabulary | {"[MASK]": len(vocabulary)})
    # As in XLM-R, the mask is the last entry; the model has some rows more than the tokenizer.
    config = config_of("bert", vocab_size=len(vocabulary) + 4)
    return _save(AutoModelForMaskedLM.from_config(config), tokenizer, folder)


def _unigrams() -> list[tuple[str, float]]:
    """Pieces with their log-probabilities; the first four are special tokens."""
    trained = Tokenizer(models.Unigram())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    trained.train_from_iterator(
        ALL, trainers.UnigramTrainer(vocab_size=75, special_tokens=special, unk_token="<unk>")
    )
    return [tuple(piece) for piece in json.loads(trained.to_str())["model"]["vocab"]]


def xlm_roberta(folder: Path) -> Path:
    tokenizer = XLMRobertaTokenizer(vocab=_unigrams())
    config = config_of(
        "xlm-roberta",
        vocab_size=len(tokenizer),
        max_position_embeddings=99,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
    )
    return _save(AutoModelForMaskedLM.from_config(config), tokenizer, folder)


def roberta(folder: Path) -> Path:
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained.train_from_iterator(
        ALL,
        trainers.BpeTrainer(
            vocab_size=353,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    model = json.loads(trained.to_str())["model"]
    tokenizer = RobertaTokenizer(vocab=model["vocab"], merges=[tuple(m) for m in model["merges"]])
    config = config_of(
        "roberta", vocab_size=len(tokenizer), pad_token_id=1, bos_token_id=0, eos_token_id=2
    )
    return _save(AutoModelForMaskedLM.from_config(config), tokenizer, folder)


def _sentencepiece(folder: Path, kind: str, size: int) -> tuple[Path, list[str]]:
    folder.mkdir(parents=True, exist_ok=True)
    prefix = folder / f"{kind}{size}"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(ALL),
        model_prefix=str(prefix),
        vocab_size=size,
        model_type=kind,
        minloglevel=2,
    )
    model = sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")
    return Path(f"{prefix}.model"), [model.id_to_piece(number) for number in range(3, size)]


def marian(folder: Path) -> Path:
    source, pieces = _sentencepiece(folder.with_name("source"), "unigram", 60)
    target, others = _sentencepiece(folder.with_name("target"), "bpe", 90)
    tokens = ["</s>", "<unk>", ">>de<<", *dict.fromkeys([*pieces, *others]), "<pad>"]
    vocabulary = folder.with_name("vocab.json")
    vocabulary.write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    tokenizer = MarianTokenizer(str(source), str(target), str(vocabulary))
    padding = len(tokens) - 1
    config = config_of(
        "marian",
        vocab_size=len(tokens),
        decoder_vocab_size=len(tokens),
        pad_token_id=padding,
        decoder_start_token_id=padding,
        eos_token_id=0,
        forced_eos_token_id=0,
        bos_token_id=0,
    )
    model = AutoModelForSeq2SeqLM.from_config(config)
    model.generation_config.bad_words_ids = [[padding]]
    model.final_logits_bias.normal_()
    return _save(model, tokenizer, folder)


_SIZES: dict[str, Any] = dict(
    d_model=24,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=16,
    decoder_ffn_dim=16,
    max_position_embeddings=64,
    pad_token_id=1,
    bos_token_id=0,
    eos_token_id=2,
)
"""Settings of the models of mBART's kind."""


def m2m_100(folder: Path) -> Path:
    file, pieces = _sentencepiece(folder.with_name("both"), "bpe", 90)
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *pieces]
    vocabulary = folder.with_name("vocab.json")
    vocabulary.write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    tokenizer = M2M100Tokenizer(str(vocabulary), str(file), src_lang="en", tgt_lang="de")
    config = M2M100Config(
        **_SIZES,
        vocab_size=len(tokens) + len(tokenizer.lang_token_to_id) + 8,
        decoder_start_token_id=2,
    )
    return _save(AutoModelForSeq2SeqLM.from_config(config), tokenizer, folder)


def mbart(folder: Path) -> Path:
    """An mBART of before mBART-50: its labels end with the token of their language."""
    tokenizer = MBartTokenizer(vocab=_unigrams(), src_lang="en_XX", tgt_lang="de_DE")
    config = MBartConfig(**_SIZES, vocab_size=len(tokenizer), forced_eos_token_id=2)
    return _save(AutoModelForSeq2SeqLM.from_config(config), tokenizer, folder)


ALL_KINDS = {
    "bert": bert,
    "xlm-roberta": xlm_roberta,
    "roberta": roberta,
    "marian": marian,
    "m2m_100": m2m_100,
    "mbart": mbart,
}
