"""Questions to the plugins, answered by a separate process.

fairseq and transformers take seconds to import, so answers without a mistake are kept in the user's
cache folder.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from headprune import DataError, HeadpruneError
from headprune.files import write_text_atomically
from studies.plugin import ROOT


def ask(
    module: str, questions: Sequence[object], *, library: str, depends: str = ""
) -> list[dict[str, Any]]:
    """Run a plugin's module, which reads questions as JSON and writes answers.

    Args:
        module: the name of the module, such as ``fairseq_plugin.flags``.
        questions: the questions, one JSON value each.
        library: the library of the plugin: ``fairseq`` or ``transformers``.
        depends: further text in the cache key, for anything besides the module's package that the
            answers depend on.

    Returns:
        An object for each question, with `mistake`: a message or None.

    Raises:
        DataError: the library is not installed, or the process fails.
    """
    text = json.dumps(questions)
    sources = _sources(module.split(".")[0], library)
    key = hashlib.sha256(f"{sources}{module}{depends}{text}".encode()).hexdigest()
    known = _cache() / f"{key}.json"
    # A file that cannot be read is written again.
    with suppress(OSError, ValueError):
        remembered: list[dict[str, Any]] = json.loads(known.read_text(encoding="utf-8"))
        return remembered
    done = subprocess.run(
        [sys.executable, "-m", module],
        cwd=ROOT,
        input=text,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no output"]
        raise DataError(f"{library} cannot check the study: {lines[-1]}")
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    if not any(answer["mistake"] for answer in answers):
        # Only speed is lost where the cache cannot be written.
        with suppress(OSError, HeadpruneError):
            known.parent.mkdir(parents=True, exist_ok=True)
            write_text_atomically(known, done.stdout)
    return answers


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home) / "headprune" / "answers"


def _sources(package: str, library: str) -> str:
    """A hash of the installed library and the plugin's code, as part of the cache key."""
    spec = importlib.util.find_spec(library)
    if spec is None or spec.origin is None:
        raise DataError(f"the study needs {library}, which is not installed here")
    digest = hashlib.sha256(f"{spec.origin} {os.stat(spec.origin).st_mtime_ns}".encode())
    for source in sorted((ROOT / package).rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()
