"""Pruned models as transformers' own kind of classes, so that they are saved and loaded again.

For each family, ``BertConfig`` say, there is a ``HeadPrunedBertConfig`` with the kept heads in it,
of model type ``headpruned-bert``, and for each of the family's models a pruned one, registered
with the Auto classes under that type. The stock classes are left as they are: without this package
transformers says that it does not know the model type ``headpruned-bert``.
"""

from __future__ import annotations

import copy
from typing import Any

from transformers import (
    AutoConfig,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.models.auto import modeling_auto
from transformers.models.auto.auto_factory import _BaseAutoModelClass
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING

from headprune.errors import DataError, UsageError
from headprune.plan import HeadPlan
from hf_plugin.families import FAMILIES, PREFIX
from hf_plugin.surgery import Heads, cut_to, head_plan, plan_after

_CONFIGS: dict[type[PreTrainedConfig], type[PreTrainedConfig]] = {}
_MODELS: dict[type[PreTrainedModel], type[PreTrainedModel]] = {}


class HeadPrunedModel:
    """What makes a stock model class a pruned one: its weights are cut as its config says."""

    def __init__(self, config: PreTrainedConfig, *inputs: Any, **options: Any) -> None:
        super().__init__(config, *inputs, **options)  # type: ignore[call-arg]
        assert isinstance(self, PreTrainedModel)
        cut_to(self, _configured_plan(config, self))


def prune_heads(model: PreTrainedModel, request: HeadPlan | Heads) -> PreTrainedModel:
    """Remove heads from ``model``, in place: their weights are gone, the outputs are as masked.

    The model becomes one of the ``HeadPruned`` classes, with a config of its own, so that
    ``save_pretrained`` writes what ``from_pretrained`` of the Auto classes reads after
    ``import hf_plugin``. If nothing is pruned it stays as it is. Prune the whole model, the one
    that will be saved, and make the optimizer afterwards: parameters of pruned layers are new.

    Args:
        model: a base model or one with a task head. Pruning a second time adds up.
        request: a ``HeadPlan`` with the heads to keep, or a dict with the heads to prune,
            ``{layer: [heads]}``, where layer -1 is the top. Head numbers are always those of the
            unpruned model.

    Returns:
        ``model`` itself.

    Raises:
        UsageError: a family that cannot be pruned, a plan of another shape, a layer or head that
            does not exist, or a head that is gone already. The model is then as it was.
    """
    plan = plan_after(model, request)
    if plan.is_full:
        return model
    cut_to(model, plan)
    stock = model.config
    config = copy.deepcopy(stock)
    config.__class__ = _CONFIGS.get(type(stock), type(stock))
    config.kept_heads = {name: [list(kept) for kept in plan.kept[name]] for name in plan.kept}
    for module in model.modules():
        if getattr(module, "config", None) is stock:
            setattr(module, "config", config)  # noqa: B010  (nn.Module's types forbid the plain form)
    model.__class__ = _MODELS.get(type(model), type(model))
    return model


def _configured_plan(config: PreTrainedConfig, model: PreTrainedModel) -> HeadPlan:
    full = head_plan(model)
    kept = getattr(config, "kept_heads", None)
    if kept is None:
        return full
    try:
        return HeadPlan(kept=kept, heads=full.heads)
    except UsageError as error:
        where = config.name_or_path or type(config).__name__
        raise DataError(f"{where}: kept_heads of the configuration: {error}") from None


def _register(family: str) -> None:
    """Make the pruned classes of ``family`` and tell the Auto classes about them."""
    stock = CONFIG_MAPPING[family]
    config = _named(
        stock,
        {
            "model_type": f"{PREFIX}{family}",
            "kept_heads": None,
            "__annotations__": {"kept_heads": dict[str, list[list[int]]] | None},
        },
    )
    _CONFIGS[stock] = config
    AutoConfig.register(config.model_type, config)
    for auto in vars(modeling_auto).values():
        if not (isinstance(auto, type) and issubclass(auto, _BaseAutoModelClass)):
            continue
        if auto._model_mapping is None or stock not in auto._model_mapping:
            continue
        model = auto._model_mapping[stock]
        if model not in _MODELS:
            _MODELS[model] = _named(model, {"config_class": config}, HeadPrunedModel)
        auto.register(config, _MODELS[model])
    tokenizer = TOKENIZER_MAPPING.get(stock, None)
    if tokenizer is not None:
        AutoTokenizer.register(config, tokenizer)


def _named(stock: type, namespace: dict[str, Any], *mixins: type) -> Any:
    """A subclass of ``stock`` with HeadPruned before its name, found in this module by pickle."""
    name = f"HeadPruned{stock.__name__}"
    made = type(name, (*mixins, stock), {"__module__": __name__, **namespace})
    globals()[name] = made
    return made


for _family in FAMILIES:
    _register(_family)
