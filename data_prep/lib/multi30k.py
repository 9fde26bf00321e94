"""Download the files of Multi30k, task 1, and verify their checksums.

The MD5 sums are those that torchtext publishes for these files (`torchtext.datasets.Multi30k`). The
SHA-256 sums of the English and German files were computed from files with these MD5 sums.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from data_prep.lib.cli import run
from data_prep.lib.download import (
    add_patience_options,
    algorithm_of,
    check_address,
    digest,
    download,
    patience_of,
)

PUBLISHED_AT = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
SPLITS = ("train", "val", "test_2016_flickr")
CHECKSUMS = {
    "train.en.gz": "sha256:d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.de.gz": "sha256:726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.fr.gz": "md5:6cb767741dcad3931f966fefbc05203f",
    "val.en.gz": "sha256:14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.de.gz": "sha256:f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.fr.gz": "md5:93fc564584b7e5ba410c761ea5a1c682",
    "test_2016_flickr.en.gz": (
        "sha256:611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9"
    ),
    "test_2016_flickr.de.gz": (
        "sha256:9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8"
    ),
    "test_2016_flickr.fr.gz": "md5:08dc7cd4a662f31718412de95ca9bfe3",
}


def main(arguments: Sequence[str]) -> None:
    """Download the files of two languages.

    A file from the authors' address with a different checksum is an error. At another address the
    files may differ on purpose, so only a note is printed.
    """
    parser = argparse.ArgumentParser(prog="python -m data_prep.lib.multi30k", description=__doc__)
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--url", default=PUBLISHED_AT, help="the address of the folder")
    parser.add_argument("--no-known-checksums", action="store_true")
    add_patience_options(parser)
    parser.add_argument("languages", nargs=2, metavar="LANGUAGE")
    options = parser.parse_args(arguments)
    names = [f"{split}.{language}.gz" for split in SPLITS for language in options.languages]
    base = options.url.rstrip("/")
    for name in names:
        check_address(f"{base}/{name}")
    strict = base == PUBLISHED_AT and not options.no_known_checksums
    unpublished, unknown = [], []
    for name in names:
        path = download(
            f"{base}/{name}",
            options.to,
            checksum=CHECKSUMS.get(name) if strict else None,
            patience=patience_of(options),
        )
        if name not in CHECKSUMS:
            unknown.append(name)
            continue
        algorithm, value = algorithm_of(CHECKSUMS[name])
        if not strict and digest(path, algorithm) != value:
            unpublished.append(name)
    for what, files in (
        ("not the published files of Multi30k", unpublished),
        ("no checksum of these files is published", unknown),
    ):
        if files and not options.no_known_checksums:
            print(
                f"note: {what}: {', '.join(files)} (--no-known-checksums leaves out this note)",
                file=sys.stderr,
            )


if __name__ == "__main__":
    run(main)
