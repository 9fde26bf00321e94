"""Bad input to the preparation scripts and to the modules that read archives and addresses."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

from tests.bad_inputs.table import BadInput

_ARCHIVE = "training-parallel-nc-v9.tgz"
_MEMBERS = [f"training/news-commentary-v9.de-en.{language}" for language in ("en", "de")]
_TEXT = b"".join(b"sentence %d\n" % number for number in range(1000))


def _tgz(path: Path, *, compresslevel: int = 9, text: bytes = _TEXT) -> bytearray:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in _MEMBERS:
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text))
    content = bytearray(gzip.compress(buffer.getvalue(), compresslevel=compresslevel))
    path.write_bytes(bytes(content))
    return content


def _changed_byte(folder: Path) -> None:
    content = _tgz(folder / _ARCHIVE, compresslevel=0)
    content[content.index(b"sentence 500")] ^= 1
    (folder / _ARCHIVE).write_bytes(bytes(content))


def _cut_off(folder: Path) -> None:
    content = _tgz(folder / _ARCHIVE)
    (folder / _ARCHIVE).write_bytes(bytes(content[:-8]))


def _web_page(folder: Path) -> None:
    (folder / _ARCHIVE).write_bytes(b"<!doctype html><html>404</html>" * 50)


def _zeros(folder: Path) -> None:
    _tgz(folder / _ARCHIVE, text=bytes(20 << 20))


def _encrypted(folder: Path) -> None:
    with zipfile.ZipFile(folder / "1mcorpus.zip", "w") as archive:
        archive.writestr("corpus.en_ru.1m.en", _TEXT)
    content = bytearray((folder / "1mcorpus.zip").read_bytes())
    content[6] = content[content.index(b"PK\x01\x02") + 8] = 1
    (folder / "1mcorpus.zip").write_bytes(bytes(content))


def _no_tab(folder: Path) -> None:
    with zipfile.ZipFile(folder / "deu-eng.zip", "w") as archive:
        archive.writestr("deu.txt", "one\teins\ntwo\n")


def _unequal(folder: Path) -> None:
    (folder / "t.en").write_text("one\ntwo\n")
    (folder / "t.de").write_text("eins\n")


def _unpack(name: str, archive: str, target: str = "de") -> tuple[str, ...]:
    module = ("python", "-m", "data_prep.lib.wmt14", "unpack", "--target", target)
    return (*module, "--name", name, "--out", "{folder}/x", f"{{folder}}/{archive}")


def _download(url: str) -> tuple[str, ...]:
    return ("python", "-m", "data_prep.lib.download", "--to", "{folder}/to", url)


def _script(name: str, *options: str) -> tuple[str, ...]:
    return ("data_prep/" + name, "--out", "{folder}/out", *options)


_NEWS = _unpack("news-commentary-v9", _ARCHIVE)
_TATOEBA = ("python", "-m", "data_prep.lib.tatoeba")

ROWS = [
    BadInput(
        label="wmt14: an archive with a changed byte",
        command=_NEWS,
        message=r"^error: .*nc-v9\.tgz: the archive is cut off or corrupt.*CRC.*delete it",
        prepare=_changed_byte,
        status=1,
    ),
    BadInput(
        label="wmt14: an archive that is cut off",
        command=_NEWS,
        message=r"^error: .*nc-v9\.tgz: the archive is cut off or corrupt",
        prepare=_cut_off,
        status=1,
    ),
    BadInput(
        label="wmt14: a web page for an archive",
        command=_NEWS,
        message=r"^error: .*nc-v9\.tgz: the archive is cut off or corrupt",
        prepare=_web_page,
        status=1,
    ),
    BadInput(
        label="wmt14: a line without end",
        command=_NEWS,
        message=r"^error: .*-en\.en in .*nc-v9\.tgz: line 1 is longer than 16777216 bytes",
        prepare=_zeros,
        status=1,
    ),
    BadInput(
        label="wmt14: an encrypted archive",
        command=_unpack("yandex", "1mcorpus.zip", "ru"),
        message=r"^error: corpus\.en_ru\.1m\.en in .*1mcorpus\.zip: encrypted; unpack it",
        prepare=_encrypted,
        status=1,
    ),
    BadInput(
        label="wmt14: an address with a password",
        command=_script("wmt14.sh", "--mirror", "http://user:word@server/"),
        message=r"^error: --mirror: 'http://user:word@server/' is not a valid address",
        status=2,
    ),
    BadInput(
        label="tatoeba: a list of something else",
        command=(*_TATOEBA, "{folder}/deu-eng.zip", "{folder}/list"),
        message=r"^error: deu\.txt in .*deu-eng\.zip: line 2 has no tab",
        prepare=_no_tab,
        status=1,
    ),
    BadInput(
        label="tatoeba: an invalid checksum",
        command=_script("tatoeba.sh", "--sha256", "x"),
        message=r"^error: --sha256: 'x' is not 64 hexadecimal digits",
        status=2,
    ),
    BadInput(
        label="multi30k: an address of a file",
        command=_script("multi30k.sh", "--url", "file:///etc"),
        message=r"^error: --url: 'file:///etc' is not an http:// or https:// address",
        status=2,
    ),
    BadInput(
        label="bitext: files of unequal length",
        command=(
            *("python", "-m", "data_prep.lib.bitext", "read", "--source-lang", "en"),
            *("--target-lang", "de", "--out", "{folder}/x", "{folder}/t"),
        ),
        message=r"^error: the sides of the corpus differ in length: .*t\.en has 2 lines, ",
        prepare=_unequal,
        status=1,
    ),
    BadInput(
        label="bitext: a language that the tokeniser does not know",
        command=("python", "-m", "data_prep.lib.languages", "--bpe", "subword-nmt", "en", "th"),
        message=r"^error: --bpe subword-nmt: the Moses tokeniser does not know the language th; ",
        status=2,
    ),
    BadInput(
        label="numbers: more sentences than there are",
        command=_script("numbers.sh", "--train", "99999999", "--python", "python"),
        message=r"^error: there are 21185060 different sentences, fewer than the 100000999",
        status=2,
    ),
    *(
        BadInput(
            label=f"download: {label}",
            command=_download(url),
            message=rf"^error: .*{message}",
            status=2,
        )
        for label, url, message in (
            ("a file", "file:///etc/passwd", "not an http:// or https:// address"),
            ("data", "data:text/plain,x", "not an http:// or https:// address"),
            ("ftp", "ftp://server/a", "not an http:// or https:// address"),
            ("no server", "http:///a", "not an address"),
            ("no port", "http://server:99999/a", "not an address"),
            ("a zero byte in the name", "http://server/a%00", "cannot be the name of a file"),
            ("a path in the name", "http://server/..%2fa", "cannot be the name of a file"),
            ("a line break in the name", "http://server/a%0ab", "cannot be the name of a file"),
        )
    ),
]
