"""Processes that find headprune or do not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run(
    code: str, folder: Path, *, blocked: bool, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run code in an interpreter that finds headprune only where it is not blocked."""
    block = "sys.modules.update(headprune=None, hf_plugin=None)" if blocked else ""
    return subprocess.run(
        [sys.executable, "-c", f"import sys; {block}\nfolder = {str(folder)!r}\n{code}"],
        capture_output=True,
        text=True,
        input="",
        env={**os.environ, "HF_MODULES_CACHE": str(folder.parent / "modules"), **environment},
    )
