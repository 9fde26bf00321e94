"""Load a model's image processor, and make batches of image files with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoImageProcessor
from transformers.image_processing_base import ImageProcessingMixin

from headprune.errors import DataError, needing
from hf_plugin.places import place, reporting


def load_image_processor(name: str) -> ImageProcessingMixin:
    """Load the image processor of the folder, or of the hub's model, ``name``.

    Raises:
        DataError: there is none.
    """
    with reporting(f"{name}: cannot load an image processor"):
        processor = AutoImageProcessor.from_pretrained(place(name), trust_remote_code=False)
    if not isinstance(processor, ImageProcessingMixin):
        raise DataError(f"{name}: no image processor (preprocessor_config.json) in the folder")
    return processor


@dataclass(frozen=True)
class ImageCollator:
    """Reads the images of a batch, and makes the model's inputs of them."""

    processor: Any

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """The batch of examples with the path ``image`` and, perhaps, a ``label``.

        Raises:
            DataError: a file is no whole image.
        """
        images = [_opened(Path(feature["image"])) for feature in features]
        batch: dict[str, Tensor] = dict(self.processor(images, return_tensors="pt"))
        if "label" in features[0]:
            batch["labels"] = torch.tensor([feature["label"] for feature in features])
        return batch


def _opened(path: Path) -> Any:
    with needing("images need pillow", install="pip install -e '.[images]'"):
        from PIL import Image
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except (OSError, SyntaxError, ValueError) as problem:  # pillow raises all three
        raise DataError(f"{path}: no image that can be read ({problem})") from None
