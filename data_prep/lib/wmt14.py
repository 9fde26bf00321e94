"""The sources of WMT'14, as published at statmt.org: find, download, read them.

The checksums were published by other projects: the SHA-256 sums of the training archives in the
checksum list of TensorFlow Datasets (wmt14_translate), the MD5 sum of test-full.tgz in sacreBLEU
(wmt14/full), the MD5 sum of dev.tgz in sockeye (autopilot). There is none for wiki-titles.tgz.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from data_prep.lib.archives import extract, printable, segments
from data_prep.lib.cli import progress, run
from data_prep.lib.corpus import read, write, zip_equal
from data_prep.lib.download import add_patience_options, download, patience_of
from headprune.errors import DataError

MIRROR = "https://www.statmt.org"


@dataclass(frozen=True)
class Source:
    """A published archive.

    Attributes:
        name: the name of the corpus in the prepared folder.
        path: the path of the archive on the server.
        checksum: the published checksum, if there is one.
        files: groups of files in the archive, in order of preference. A group is the two sides,
            English first, or one file with both.
    """

    name: str
    path: str
    checksum: str | None
    files: tuple[tuple[str, ...], ...]

    @property
    def archive(self) -> str:
        """File name of the archive."""
        return self.path.rsplit("/", 1)[-1]


def _plain(prefix: str, target: str) -> tuple[str, str]:
    return f"{prefix}.en", f"{prefix}.{target}"


def training_sources(target: str) -> list[Source]:
    """List the downloadable training data from English into a language; empty if there is none."""
    both = f"{target}-en"
    europarl = Source(
        "europarl-v7",
        "wmt13/training-parallel-europarl-v7.tgz",
        "sha256:0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
        (_plain(f"europarl-v7.{both}", target),),
    )
    common_crawl = Source(
        "commoncrawl",
        "wmt13/training-parallel-commoncrawl.tgz",
        "sha256:c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
        (_plain(f"commoncrawl.{both}", target),),
    )
    news_commentary = Source(
        "news-commentary-v9",
        "wmt14/training-parallel-nc-v9.tgz",
        "sha256:cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
        (_plain(f"news-commentary-v9.{both}", target),),
    )
    wiki_headlines = Source("wiki-titles", "wmt15/wiki-titles.tgz", None, ((f"wiki.{both}",),))
    if target in ("cs", "de", "fr"):
        return [europarl, common_crawl, news_commentary]
    return [common_crawl, news_commentary, wiki_headlines] if target == "ru" else []


def yandex_source() -> Source:
    """Describe the Yandex corpus. It is never downloaded, since its licence requires a form."""
    return Source("yandex", "1mcorpus.zip", None, (("corpus.en_ru.1m.en", "corpus.en_ru.1m.ru"),))


def held_out_source(split: str, target: str) -> Source:
    """Describe newstest2013 for the split ``valid``, newstest2014 for ``test``."""
    if split == "valid":
        return Source(
            "valid",
            "wmt14/dev.tgz",
            "md5:88ba3fc60b2278d59277122e1c7dd6e7",
            (
                _plain("newstest2013", target),
                ("newstest2013-src.en.sgm", f"newstest2013-ref.{target}.sgm"),
                ("newstest2013-src.en.sgm", f"newstest2013-src.{target}.sgm"),
            ),
        )
    prefix = f"newstest2014-{target}en"
    return Source(
        "test",
        "wmt14/test-full.tgz",
        "md5:a8cd784e006feb32ac6f3d9ec7eb389a",
        ((f"{prefix}-src.en.sgm", f"{prefix}-ref.{target}.sgm"),),
    )


@dataclass(frozen=True)
class LocalSource:
    """A source on this machine: an archive, or two parallel files."""

    name: str
    files: tuple[Path, ...]


def _either(folder: Path, name: str) -> Path | None:
    """Return the path of a file, plain or .gz; None if there is neither."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    return None


def _pair(folder: Path, source: str, target: str) -> tuple[Path, Path] | None:
    sides = _either(folder, source), _either(folder, target)
    return (sides[0], sides[1]) if sides[0] and sides[1] else None


def find_held_out(folder: Path, split: str, target: str) -> LocalSource:
    """Find the validation or test set in the user's folder.

    Raises:
        DataError: there is none.
    """
    source = held_out_source(split, target)
    year = {"valid": "newstest2013", "test": "newstest2014"}[split]
    names = [*source.files]
    names += [_plain(prefix, target) for prefix in (f"{year}.en-{target}", year, split)]
    for name in names:
        pair = _pair(folder, name[0], name[1])
        if pair:
            return LocalSource(split, pair)
    if (folder / source.archive).is_file():
        return LocalSource(split, (folder / source.archive,))
    raise DataError(
        f"{folder}: no {split} set, neither {source.archive} nor {year}.en nor {split}.en "
        f"with its .{target} (plain or .gz)"
    )


def _is_held_out(name: str) -> bool:
    return name.startswith("newstest") or name in ("valid", "test", "dev", "val")


def find_training(folder: Path, target: str) -> list[LocalSource]:
    """Find the training sources in the user's folder: published archives and plain pairs.

    Raises:
        DataError: there are none.
    """
    sources = []
    for source in training_sources(target):
        if (folder / source.archive).is_file():
            sources.append(LocalSource(source.name, (folder / source.archive,)))
    names = {
        path.name.removesuffix(".gz").removesuffix(".en")
        for path in folder.glob("*.en*")
        if path.name.endswith((".en", ".en.gz"))
    }
    for name in sorted(name for name in names if not _is_held_out(name)):
        pair = _pair(folder, *_plain(name, target))
        if pair is None:
            # It may belong to another pair of languages, so this is not an error.
            print(f"note: {name}.en has no {name}.{target}, left out", file=sys.stderr)
        else:
            sources.append(LocalSource(f"plain-{name}", pair))
    if not sources:
        archives = ", ".join(source.archive for source in training_sources(target))
        neither = f"neither {archives} nor a" if archives else "no"
        raise DataError(
            f"{folder}: no training data, {neither} NAME.en with its NAME.{target} (plain or .gz)"
        )
    return sources


def _sentences(path: Path, name: str) -> Iterator[str]:
    lines = read(path, name=name)
    return segments(lines) if path.name.removesuffix(".gz").endswith(".sgm") else lines


def _both_sides(path: Path, name: str) -> Iterator[tuple[str, str]]:
    """Read a file of lines ``foreign ||| English``; yield the English side first."""
    for number, line in enumerate(read(path, name=name), start=1):
        sides = line.split("|||")
        if len(sides) != 2:
            raise DataError(f"{name}: line {number} is not 'ONE ||| OTHER'")
        yield sides[1].strip(), sides[0].strip()


def read_source(
    files: Sequence[Path], name: str, *, target: str, scratch: Path
) -> Iterator[tuple[str, ...]]:
    """Read the pairs of a source, English first.

    Args:
        files: an archive, or the English and the other side.
        name: the name of the source, which decides the files to extract from an archive.
        target: the language beside English.
        scratch: an empty folder to unpack into.
    """
    names = [str(path) for path in files]
    if len(files) == 1:
        known = [*training_sources(target), yandex_source()]
        known += [held_out_source(split, target) for split in ("valid", "test")]
        source = next(source for source in known if source.name == name)
        archive = files[0]
        files = extract(archive, source.files, scratch)
        names = [f"{path.name} in {archive}" for path in files]
    if len(files) == 1:
        yield from _both_sides(files[0], names[0])
        return
    yield from zip_equal(
        [_sentences(path, name) for path, name in zip(files, names, strict=True)], names=names
    )


def _list_command(options: argparse.Namespace) -> None:
    """Print a line for each source: its name and its files, separated by tabs."""
    target = options.target
    if options.folder:
        training = find_training(options.folder, target)
        held_out = [find_held_out(options.folder, split, target) for split in ("valid", "test")]
        file_names = {path.name for item in training for path in item.files}
        for source in training_sources(target):
            if source.archive not in file_names:
                print(f"note: {options.folder} has no {source.archive}", file=sys.stderr)
        local_sources = [*training, *held_out]
    else:
        local_sources = []
        published = training_sources(target)
        published += [held_out_source(split, target) for split in ("valid", "test")]
        for source in published:
            address = f"{options.mirror.rstrip('/')}/{source.path}"
            known = None if options.no_known_checksums else source.checksum
            path = download(address, options.to, checksum=known, patience=patience_of(options))
            local_sources.append(LocalSource(source.name, (path,)))
    if options.yandex:
        if not options.yandex.is_file():
            raise DataError(f"{options.yandex}: no such file")
        local_sources.insert(-2, LocalSource("yandex", (options.yandex,)))
    for item in local_sources:
        for part in (item.name, *map(str, item.files)):
            if "\t" in part or "\n" in part:
                raise DataError(f"{printable(part)}: a name with a tab or line break; rename it")
    for item in local_sources:
        print(item.name, *item.files, sep="\t")


def _unpack_command(options: argparse.Namespace) -> None:
    prefix = options.out
    with TemporaryDirectory(
        dir=prefix.parent, prefix=f".{prefix.name}.en.", suffix=".tmp"
    ) as scratch:
        rows = read_source(
            options.files, options.name, target=options.target, scratch=Path(scratch)
        )
        count = write(
            progress(rows, what=options.name), f"{prefix}.en", f"{prefix}.{options.target}"
        )
    print(f"{options.name}: {count} pairs", file=sys.stderr)


def main(arguments: Sequence[str]) -> None:
    """Find or download the sources, or turn one into two plain files."""
    parser = argparse.ArgumentParser(prog="python -m data_prep.lib.wmt14", description=__doc__)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("list", help="list all sources; download missing ones")
    command.add_argument("--target", required=True, metavar="LANGUAGE")
    command.add_argument("--folder", type=Path, help="use the files in this folder, no downloads")
    command.add_argument("--mirror", default=MIRROR)
    command.add_argument("--to", type=Path, default=Path("download"), metavar="FOLDER")
    command.add_argument("--yandex", type=Path)
    command.add_argument("--no-known-checksums", action="store_true")
    add_patience_options(command)
    command.set_defaults(command=_list_command)
    command = commands.add_parser("unpack", help="turn a source into two plain files")
    command.add_argument("--target", required=True, metavar="LANGUAGE")
    command.add_argument("--name", required=True)
    command.add_argument("--out", type=Path, required=True, metavar="PREFIX")
    command.add_argument("files", type=Path, nargs="+")
    command.set_defaults(command=_unpack_command)
    options = parser.parse_args(arguments)
    options.command(options)


if __name__ == "__main__":
    run(main)
