"""Labelled images: a folder with a sub-folder for each label."""

from __future__ import annotations

import hashlib
from pathlib import Path

from headprune.errors import DataError, needing
from hf_plugin.tasks.tables import Table

_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm")


def is_image_folder(source: str) -> bool:
    """Check if a path is a folder with a sub-folder that has an image in it or below it."""
    folder = Path(source)
    return folder.is_dir() and any(
        _is_image(path) for label in folder.iterdir() if label.is_dir() for path in label.rglob("*")
    )


def read_images(source: str) -> Table:
    """Read the names and labels of images; the images themselves are read when they are needed.

    The name of a sub-folder is the label of all images in it and below it.

    Args:
        source: a folder with a sub-folder for each label.

    Returns:
        A table whose texts are the paths of images in the folder.

    Raises:
        DataError: there is no such folder, it has no image, a sub-folder has none, or a file is no
            image.
        UsageError: pillow is not installed.
    """
    with needing("images need pillow", install="pip install -e '.[images]'"):
        from PIL import Image, UnidentifiedImageError
    folder = Path(source)
    if not folder.is_dir():
        raise DataError(
            f"{source}: no such folder; images need a folder with one sub-folder for each label"
        )
    paths: list[Path] = []
    labels: list[str] = []
    hashes: list[str] = []
    for sub_folder in sorted(path for path in folder.iterdir() if path.is_dir()):
        images = sorted(path for path in sub_folder.rglob("*") if _is_image(path))
        if not images:
            raise DataError(f"{sub_folder}: no image in it; add some, or delete the folder")
        for path in images:
            try:
                with Image.open(path):  # its header alone
                    pass
                hashes.append(hashlib.sha256(path.read_bytes()).hexdigest())
            except (UnidentifiedImageError, OSError):
                raise DataError(f"{path}: no image that can be read") from None
            paths.append(path.relative_to(folder))
            labels.append(sub_folder.name)
    if not paths:
        raise DataError(f"{source}: no sub-folder in it; images need one for each label")
    names = [path.as_posix() for path in paths]
    return Table(source, [(name,) for name in names], labels, names, hashes=hashes)


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in _ENDINGS and path.is_file()
