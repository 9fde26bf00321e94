"""Pruning of heads, neurons and layers for BERT and its relatives in transformers 5.

>>> import hf_plugin
>>> hf_plugin.prune_heads(model, {0: [2, 5], -1: range(12)})  # doctest: +SKIP
>>> hf_plugin.prune(model, plan)  # doctest: +SKIP
>>> hf_plugin.plan(model)  # doctest: +SKIP
>>> model.save_pretrained("pruned")  # doctest: +SKIP

Importing it is enough for ``from_pretrained`` of the Auto classes to read such a folder.
"""

from hf_plugin.loading import from_pretrained
from hf_plugin.masks import masked
from hf_plugin.modeling import prune, prune_heads
from hf_plugin.plans import head_plan, plan
from hf_plugin.refitting import refit

__all__ = ["from_pretrained", "head_plan", "masked", "plan", "prune", "prune_heads", "refit"]
