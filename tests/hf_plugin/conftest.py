from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.hf_plugin.made import write_model, write_task

BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny pretrained BERT."""
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def glue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with small files of all tasks."""
    folder = tmp_path_factory.mktemp("glue")
    from hf_plugin.glue.tasks import TASKS

    for name in TASKS:
        write_task(folder, name)
    return folder


@pytest.fixture
def real_glue() -> Path:
    """Folder with the original GLUE files, if there is one."""
    folder = Path(os.environ.get("HEADPRUNE_DATA", BESIDE)) / "glue"
    if not folder.is_dir():
        pytest.skip(f"no GLUE files in {folder}; set HEADPRUNE_DATA to the folder above glue/")
    return folder
