"""Head pruning for BERT and its relatives in transformers 5.

>>> import hf_plugin
>>> hf_plugin.prune_heads(model, {0: [2, 5], -1: range(12)})  # doctest: +SKIP
>>> hf_plugin.head_plan(model)  # doctest: +SKIP
>>> model.save_pretrained("pruned")  # doctest: +SKIP

Importing it is enough for ``from_pretrained`` of the Auto classes to read such a folder.
"""

from hf_plugin.loading import from_pretrained
from hf_plugin.modeling import prune_heads
from hf_plugin.surgery import head_plan, masked

__all__ = ["from_pretrained", "head_plan", "masked", "prune_heads"]
