"""The steps of `data_prep/wmt14.sh --pairs all` in one process.

    python -m benchmarks.plain_data_prep FROM OUT [--merges 32000]

The tools are sacremoses, subword-nmt and fairseq. FROM holds train, valid and test in two
languages, raw; OUT gets tok/, bpe/ and bin/. `benchmarks.data_prep_speed` compares with it. It does
not check for broken input.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from sacremoses import MosesPunctNormalizer, MosesTokenizer
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

LANGUAGES = ("en", "de")
SPLITS = ("train", "valid", "test")
RATIO, LONGEST = 1.5, 250  # wmt14.sh's own; in tokens


def tokenise(source: Path, target: Path, *, language: str) -> None:
    """By Moses' rules, line by line."""
    normaliser, tokeniser = MosesPunctNormalizer(lang=language), MosesTokenizer(lang=language)
    with open(source, encoding="utf-8", newline="\n") as lines, open(target, "w") as out:
        for line in lines:
            text = normaliser.normalize(line.rstrip("\n"))
            out.write(tokeniser.tokenize(text, aggressive_dash_splits=True, return_str=True) + "\n")


def clean(sources: list[Path], targets: list[Path]) -> None:
    """Leave out what Moses' clean-corpus-n leaves out."""
    with ExitStack() as files:
        sides = [files.enter_context(open(path, newline="\n")) for path in sources]
        outs = [files.enter_context(open(path, "w")) for path in targets]
        for pair in zip(*sides, strict=True):
            short, long = sorted(len(line.split()) for line in pair)
            if short >= 1 and long <= LONGEST and long <= RATIO * short:
                for line, out in zip(pair, outs, strict=True):
                    out.write(line)


def main() -> None:
    """Prepare one corpus."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--merges", type=int, default=32000)
    options = parser.parse_args()
    tok, bpe = options.out / "tok", options.out / "bpe"
    for folder in (tok, bpe):
        folder.mkdir(parents=True)

    for language in LANGUAGES:
        for split in SPLITS:
            name = f"{split}.{language}"
            tokenised_path = tok / (f"all.{language}" if split == "train" else name)
            tokenise(options.source / name, tokenised_path, language=language)
    training = [tok / f"train.{language}" for language in LANGUAGES]
    clean([tok / f"all.{language}" for language in LANGUAGES], training)

    joint_text = options.out / "both"
    joint_text.write_bytes(b"".join(path.read_bytes() for path in training))
    with (
        open(joint_text, encoding="utf-8", newline="\n") as text,
        open(bpe / "codes", "w") as codes,
    ):
        learn_bpe(text, codes, options.merges)
    with open(bpe / "codes", encoding="utf-8") as codes:
        splitter = BPE(codes)
    for language in LANGUAGES:
        for split in SPLITS:
            name = f"{split}.{language}"
            with open(tok / name, newline="\n") as lines, open(bpe / name, "w") as out:
                out.writelines(splitter.process_line(line) for line in lines)

    command = [sys.executable, "-m", "fairseq_cli.preprocess", "--joined-dictionary"]
    command += ["--source-lang", LANGUAGES[0], "--target-lang", LANGUAGES[1]]
    command += ["--destdir", str(options.out / "bin"), "--workers", "1"]
    for split in SPLITS:
        command += [f"--{split}pref", str(bpe / split)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
