"""Trim the vocabulary of a Hugging Face folder: tokenizer, embeddings and output layer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from headprune.errors import DataError, UsageError
from headprune.folders import new_folder, require_outside
from headprune.vocabulary import TokenCounts, Trimmed
from hf_plugin.folder_check import require_finite
from hf_plugin.folder_files import copy_files, named_as
from hf_plugin.folders import NOT_COPIED
from hf_plugin.loading import complete_model, from_pretrained, read_config
from hf_plugin.places import place, reporting
from hf_plugin.quiet import quieten
from hf_plugin.sizes import count_parameters
from hf_plugin.tokenizers import load_tokenizer
from hf_plugin.vocabulary import sentencepiece_files, tokenizer_json, weights

_TOKENIZER = (
    *("tokenizer*.json", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt"),
    *("*.spm", "*.model", "target_vocab.json", "config.json", "generation_config.json"),
)
"""Files of a tokenizer and a model that are written anew."""

_VOCABULARY = "vocabulary"
"""The name of the only vocabulary of a folder."""

_LINES = 1000
_COMPARED = 8
_LENGTH = 24
_TOLERANCE = 1e-4


def trim_vocabulary(
    name: Path, output: Path, *, text: Sequence[str], held_out: Sequence[str]
) -> Trimmed:
    """Write a folder without the tokens that a text never uses.

    Special tokens, language codes, and the single characters of the text are kept. The folder is
    written only if each line of the text has the same tokens as before, and the model the same
    outputs on some of the lines.

    Args:
        name: the model's folder.
        output: the new folder.
        text: lines; of a translation model, of both languages.
        held_out: lines to count tokens of; may be empty.

    Raises:
        UsageError: a tokenizer or model whose vocabulary cannot be trimmed.
        DataError: a folder that cannot be read or written, or one that does not give the same
            tokens and outputs.
    """
    quieten()
    folder = Path(place(str(name)))
    require_outside(output, folder)
    tokenizer = load_tokenizer(str(folder))
    config, _ = read_config(folder)
    model = complete_model(folder, name=str(name))
    require_finite(model, name=str(name))
    if model.main_input_name != "input_ids":
        raise UsageError(
            f"{name}: {type(model).__name__} reads {model.main_input_name}, not tokens; give a "
            "model that reads text"
        )
    model.eval()
    with new_folder(output) as temporary:
        tokenizer.save_pretrained(temporary)
        lines = list(_token_numbers(tokenizer, text))
        numbers = _renumbering(model, tokenizer, temporary, text=text, used=lines, name=str(name))
        kept = sorted(numbers)
        some = lines[:: max(1, len(lines) // _COMPARED)][:_COMPARED]
        before = [_outputs(model, line) for line in some]
        size, parameters = int(model.config.vocab_size), count_parameters(model)
        weights.trim(model, numbers)
        unwanted = named_as(*NOT_COPIED, *_TOKENIZER)
        copy_files(folder, temporary, wanted=lambda file: not unwanted(file))
        model.save_pretrained(temporary)
        with reporting(f"{name}: its vocabulary cannot be trimmed"):
            smaller = AutoTokenizer.from_pretrained(temporary, trust_remote_code=False)
            renewed = from_pretrained(temporary, None if config.architectures else AutoModel).eval()
        for index, (old, new) in enumerate(zip(lines, _token_numbers(smaller, text), strict=True)):
            if [numbers[number] for number in old] != new:
                raise DataError(
                    f"{name}: its vocabulary cannot be trimmed: the text "
                    f"{text[index % len(text)][:40]!r} would have other tokens"
                )
        for line, outputs in zip(some, before, strict=True):
            after = _outputs(renewed, [numbers[number] for number in line])
            if not all(_equal(a, b, kept, size) for a, b in zip(outputs, after, strict=True)):
                raise DataError(
                    f"{name}: its vocabulary cannot be trimmed: its outputs would change"
                )
        counts = {}
        if held_out:
            counts[_VOCABULARY] = _counts(tokenizer, held_out), _counts(smaller, held_out)
    return Trimmed(
        sizes={_VOCABULARY: (size, len(numbers))},
        parameters=(parameters, count_parameters(renewed)),
        held_out=counts,
    )


def _renumbering(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    *,
    text: Sequence[str],
    used: Iterable[Sequence[int]],
    name: str,
) -> dict[int, int]:
    """Trim the tokenizer's files in a folder.

    Args:
        folder: the new folder, with the whole tokenizer.
        name: the model's name, for messages.

    Returns:
        From the numbers of kept tokens to the new ones.
    """
    is_fast = (folder / tokenizer_json.FILE).is_file()
    seen = {number for line in used for number in line}
    always = {number for number in _special_numbers(tokenizer) if number is not None}
    always |= weights.token_numbers(model.config)
    always |= weights.token_numbers(getattr(model, "generation_config", None))
    if is_fast:
        content = json.loads((folder / tokenizer_json.FILE).read_text(encoding="utf-8"))
        numbered = tokenizer_json.entries(content)
    elif (folder / sentencepiece_files.VOCABULARY).is_file() and not _is_separate(tokenizer):
        # M2M100's language codes follow the entries of vocab.json.
        numbered = {**tokenizer.get_vocab(), **getattr(tokenizer, "lang_token_to_id", {})}
    else:
        raise UsageError(
            f"{type(tokenizer).__name__}: a tokenizer without tokenizer.json, or with two "
            "vocabularies, which cannot be trimmed"
        )
    size = int(model.config.vocab_size)
    tokens = {number: token for token, number in numbered.items()}
    strings = {tokens[number] for number in (seen | always) if number in tokens}
    if is_fast:
        kept_strings = tokenizer_json.kept_entries(content, strings)
    else:
        strings |= {piece for line in _tokens(tokenizer, text) for piece in line}
        kept_strings = sentencepiece_files.kept_entries(folder, strings)
    kept = sorted({numbered[token] for token in kept_strings if token in numbered})
    if kept and kept[-1] >= size:
        raise DataError(
            f"{name}: the tokenizer has more entries than the model's {size}; give the model its "
            "own tokenizer"
        )
    numbers = {old: new for new, old in enumerate(kept)}
    if is_fast:
        tokenizer_json.trim(folder / tokenizer_json.FILE, numbers)
    else:
        sentencepiece_files.trim(folder, kept_strings, numbers)
    _renumber_config(folder / "tokenizer_config.json", numbers)
    return numbers


def _special_numbers(tokenizer: PreTrainedTokenizerBase) -> list[int | None]:
    """Special tokens, added tokens and language codes."""
    codes = [*getattr(tokenizer, "lang_code_to_id", {}).values()]
    names: list[str] = [*getattr(tokenizer, "supported_language_codes", [])]
    named = [tokenizer.get_vocab()[name] for name in names]
    return [*tokenizer.all_special_ids, *tokenizer.get_added_vocab().values(), *codes, *named]


def _is_separate(tokenizer: Any) -> bool:
    return bool(getattr(tokenizer, "separate_vocabs", False))


def _renumber_config(path: Path, numbers: Mapping[int, int]) -> None:
    """Number the added tokens in tokenizer_config.json anew."""
    content = json.loads(path.read_text(encoding="utf-8"))
    added = content.get("added_tokens_decoder")
    if added:
        content["added_tokens_decoder"] = {
            str(numbers[int(number)]): token
            for number, token in added.items()
            if int(number) in numbers
        }
        path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _encoded(tokenizer: Any, lines: Sequence[str], **options: Any) -> Iterator[list[int]]:
    for start in range(0, len(lines), _LINES):
        part = list(lines[start : start + _LINES])
        if "text_target" in options:
            yield from tokenizer(text_target=part, verbose=False)["input_ids"]
        else:
            yield from tokenizer(part, verbose=False, **options)["input_ids"]


def _token_numbers(tokenizer: Any, lines: Sequence[str]) -> Iterator[list[int]]:
    """The tokens of each line; with two splitters, those of the source, then of the target."""
    yield from _encoded(tokenizer, lines)
    if hasattr(tokenizer, "spm_target"):
        yield from _encoded(tokenizer, lines, text_target=True)


def _tokens(tokenizer: Any, lines: Sequence[str]) -> Iterator[list[str]]:
    """The pieces of each line, also those that are not in the vocabulary."""
    splitters = [
        getattr(tokenizer, name)
        for name in ("spm_source", "spm_target", "sp_model")
        if hasattr(tokenizer, name)
    ]
    for line in lines:
        for splitter in splitters:
            yield splitter.encode(line, out_type=str)


@torch.no_grad()
def _outputs(model: PreTrainedModel, tokens: Sequence[int]) -> list[Tensor]:
    """The logits, or hidden states, of a line."""
    shown = list(tokens)
    if len(shown) > _LENGTH:
        shown = [*shown[: _LENGTH - 1], shown[-1]]  # BART's classifiers read from the end token
    inputs = {"input_ids": torch.tensor([shown], device=model.device)}
    if "MultipleChoice" in type(model).__name__:
        inputs["input_ids"] = inputs["input_ids"][:, None]  # one choice
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = inputs["input_ids"]
    outputs = model(**inputs, return_dict=True)
    return [value for value in outputs.to_tuple() if isinstance(value, Tensor)]


def _equal(before: Tensor, after: Tensor, kept: Sequence[int], size: int) -> bool:
    if before.shape != after.shape and before.size(-1) == size:
        before = before[..., torch.tensor(kept, device=before.device)]
    return before.shape == after.shape and torch.allclose(
        before, after, atol=_TOLERANCE, rtol=_TOLERANCE
    )


def _counts(tokenizer: Any, lines: Sequence[str]) -> TokenCounts:
    numbers = [
        number for line in _encoded(tokenizer, lines, add_special_tokens=False) for number in line
    ]
    unknown = tokenizer.unk_token_id
    return TokenCounts(tokens=len(numbers), unknown=sum(number == unknown for number in numbers))
