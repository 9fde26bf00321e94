"""The shapes of pretrained models, for programs that do not import transformers.

    python -m hf_plugin.shapes < models.json

reads a JSON list of folders and names on the hub, and writes a JSON list of objects: `mistake`, a
message or null, and `shape`, the units of each layer by component. No weights are read.
"""

from __future__ import annotations

from headprune.answers import serve
from hf_plugin.folders import outline_of
from hf_plugin.loading import read_config
from hf_plugin.places import place, reporting
from hf_plugin.plans import full_plan
from hf_plugin.quiet import quieten


def model_shape(name: str) -> dict[str, tuple[int, ...]]:
    """The units of each layer of the unpruned model.

    Args:
        name: a folder or a name on the hub.

    Raises:
        UsageError: a family that cannot be pruned.
        DataError: no such model.
    """
    with reporting(f"{name}: cannot read the model"):
        config, _ = read_config(place(name))
        units = full_plan(outline_of(config, where=name)).units
    return {component: tuple(layers) for component, layers in units.items()}


if __name__ == "__main__":
    quieten()
    serve(lambda name: {"shape": model_shape(name)})
