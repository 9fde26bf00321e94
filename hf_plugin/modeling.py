"""Pruned models as transformers' own kind of classes, so that they are saved and loaded again.

For each family, ``BertConfig`` say, there is a ``HeadPrunedBertConfig`` with the kept heads in it,
of model type ``headpruned-bert``, and for each of the family's models a pruned one, registered
with the Auto classes under that type. The stock classes stay as they are, except that their
``from_pretrained`` gives a pruned model if the config is of one. Without this package
transformers asks for ``trust_remote_code``, and then runs ``modeling_headpruned`` from the folder.
"""

from __future__ import annotations

import copy
import functools
import re
from typing import Any, SupportsIndex

import torch
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
from hf_plugin.adapters import prepare_peft
from hf_plugin.families import attentions, family_of
from hf_plugin.head_names import FAMILIES, PREFIX
from hf_plugin.pruned_files import BY_HEAD, PrunedConfig, PrunedFiles, expect_layout
from hf_plugin.surgery import Heads, cut_to, head_plan, make_uniform, plan_after

_PRUNED = "HeadPruned"
FORMS = ("remove", "uniform")
_HEADS = dict[str, list[list[int]]] | None
CONFIGS: dict[type[PreTrainedConfig], type[PreTrainedConfig]] = {}
MODELS: dict[type[PreTrainedModel], type[PreTrainedModel]] = {}
"""For each stock class of a known family, the class of its pruned ones."""


class _PrunedConfig(PrunedConfig):
    """A config that tells peft of pruned models, which asks a model's config what model it is."""

    def to_dict(self) -> dict[str, Any]:
        """As of the class that it is made of."""
        prepare_peft()
        return super().to_dict()


class HeadPrunedModel(PrunedFiles):
    """The part of a pruned model class that cuts the weights as the config says."""

    def __init__(self, config: PreTrainedConfig, *inputs: Any, **options: Any) -> None:
        if getattr(config, "quantization_config", None) is not None and config.uniform_heads:
            raise UsageError(
                "a model in form uniform cannot be quantised while it is loaded, as queries would "
                "no longer be multiplied by 0; quantise it afterwards, or what `headprune export "
                "--to transformers` writes"
            )
        super().__init__(config, *inputs, **options)  # type: ignore[call-arg]
        assert isinstance(self, PreTrainedModel)
        kept, present = _configured_plans(config, self)
        cut_to(self, present)
        make_uniform(self, kept)
        empty = []
        for layers in attentions(self).values():
            for number, attention in enumerate(layers):
                for linear in attention.queries:
                    expect_layout(linear)
                if not attention.present:  # older files have empty tensors, which are not needed
                    names = attention.names
                    parts = "|".join(map(re.escape, (*names.inputs, *names.optional, names.output)))
                    empty.append(rf"{re.escape(names.layers)}\.{number}\.({parts})\.(weight|bias)$")
        ignored = self._keys_to_ignore_on_load_unexpected
        self._keys_to_ignore_on_load_unexpected = {*(ignored or ()), *empty}

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """By the class that it is made of: another process may have no pruned class of it yet."""
        own: Any = type(self)
        stock = own.__bases__[-1]
        reduced = super().__reduce_ex__(protocol)
        if MODELS.get(stock) is not own:  # a class made of a pruned one
            return reduced
        return _without_state, (stock,), *reduced[2:]


def _without_state(stock: type[PreTrainedModel]) -> PreTrainedModel:
    """Where unpickling begins: an empty object of the pruned class of ``stock``."""
    pruned = pruned_class(stock)
    return pruned.__new__(pruned)


def prune_heads(
    model: PreTrainedModel, request: HeadPlan | Heads, *, form: str = "remove"
) -> PreTrainedModel:
    """Prune heads of ``model``, in place.

    The model becomes one of the ``HeadPruned`` classes, with a config of its own, so that
    ``save_pretrained`` writes what ``from_pretrained`` of the Auto classes reads after
    ``import hf_plugin``. If nothing is pruned it stays as it is. Prune the whole model, the one
    that will be saved, and make the optimizer afterwards: parameters of pruned layers are new.

    Args:
        model: a base model or one with a task head. Pruning a second time adds up.
        request: a ``HeadPlan`` with the heads to keep, or a dict with the heads to prune,
            ``{layer: [heads]}``, where layer -1 is the top; heads as any iterable of integers, a
            tensor or an array. Head numbers are always those of the unpruned model. Heads that
            are gone already stay gone. To remove heads that are uniform, give a plan.
        form: ``remove``: the heads' weights are gone, the outputs are as with ``masked`` (Budhraja
            et al. 2020, equation 2). ``uniform``: the weights stay, and the heads' attention
            scores are multiplied by 0 before the softmax, as in the first version of that paper's
            released BERT code (October 2020; since November 2021 it follows equation 2): each
            averages the values of all tokens evenly. (Adapters on the queries' projections, such
            as LoRA's, get round this; put them on other projections.)

    Returns:
        ``model`` itself.

    Raises:
        UsageError: a family that cannot be pruned, a plan of another shape, a layer or head that
            does not exist, a uniform head to remove, or no such form. The model is then as it was.
    """
    if form not in FORMS:
        raise UsageError(f"form: {form!r} is not one of {', '.join(FORMS)}")
    plan = plan_after(model, request, form=form)
    if form == "remove":
        cut_to(model, plan, spare_uniform=not isinstance(request, HeadPlan))
    else:
        make_uniform(model, plan)
    if plan.is_full:
        return model
    stock = model.config
    config = copy.deepcopy(stock)
    config.__class__ = CONFIGS.get(type(stock), type(stock))
    vars(config).pop("model_type", None)  # a config that was read from JSON has one of its own
    config.kept_heads, config.uniform_heads = _as_json(model)
    config.uniform_layout = BY_HEAD
    for module in model.modules():
        if getattr(module, "config", None) is stock:
            setattr(module, "config", config)  # noqa: B010  (nn.Module's types forbid the plain form)
    _become(model, pruned_class(type(model)))
    return model


def pruned_class(stock: type[PreTrainedModel]) -> type[PreTrainedModel]:
    """The class of pruned models of a class; one is made for a class of the user's own.

    ``type(model).from_pretrained`` reads what such a model saves.
    """
    if issubclass(stock, HeadPrunedModel):
        return stock
    if stock not in MODELS:
        config = CONFIGS.get(getattr(stock, "config_class", None) or PreTrainedConfig)
        if config is None:  # of no family: an Auto class
            return stock
        MODELS[stock] = _named(stock, {"config_class": config}, HeadPrunedModel)
    return MODELS[stock]


def _become(model: PreTrainedModel, pruned: type[PreTrainedModel]) -> None:
    if type(model) is pruned:
        return
    model.__class__ = pruned
    # transformers notes what a class can return besides its output (attention weights, hidden
    # states) when the first model of that class is made.
    with torch.device("meta"):
        pruned(model.config)


def kept_lists(plan: HeadPlan) -> dict[str, list[list[int]]]:
    """The heads that a plan keeps, as a config's ``kept_heads`` says it."""
    return {name: [list(heads) for heads in layers] for name, layers in plan.kept.items()}


def _as_json(
    model: PreTrainedModel,
) -> tuple[dict[str, list[list[int]]], dict[str, list[list[int]]] | None]:
    """What the config says: for each component, for each layer, kept and uniform heads."""
    found = attentions(model).items()
    uniform = {name: [list(attention.uniform) for attention in layers] for name, layers in found}
    some = any(heads for layers in uniform.values() for heads in layers)
    return kept_lists(head_plan(model)), uniform if some else None


def _configured_plans(
    config: PreTrainedConfig, model: PreTrainedModel
) -> tuple[HeadPlan, HeadPlan]:
    """The heads that are kept, and those that have weights: the kept and the uniform ones.

    A model may have fewer components than the one that was saved (a decoder alone), and then takes
    what concerns it.
    """
    full = head_plan(model)
    elsewhere = set(FAMILIES[family_of(model)]) - set(full.kept)
    kept = dict(full.kept)
    present = dict(full.kept)
    try:
        given = _by_component(config, "kept_heads", elsewhere=elsewhere)
        uniform = _by_component(config, "uniform_heads", elsewhere=elsewhere)
        for name in {**given, **uniform}:
            kept[name] = given.get(name, full.kept.get(name, ()))
            both = zip(kept[name], uniform.get(name) or [()] * len(kept[name]), strict=True)
            present[name] = tuple(tuple(sorted((*heads, *more))) for heads, more in both)
        return (
            HeadPlan(kept=kept, heads=full.heads),
            HeadPlan(kept=present, heads=full.heads),
        )
    except (UsageError, TypeError, ValueError) as error:
        where = config.name_or_path or type(config).__name__
        raise DataError(f"{where}: kept_heads of the configuration: {error}") from None


def _by_component(config: PreTrainedConfig, key: str, *, elsewhere: set[str]) -> dict[str, Any]:
    given = getattr(config, key, None) or {}
    if not isinstance(given, dict):
        raise UsageError(f"{key} is a {type(given).__name__}, it has to name components")
    return {name: layers for name, layers in given.items() if name not in elsewhere}


def _register(family: str) -> None:
    """Make the pruned classes of ``family`` and tell the Auto classes about them."""
    stock = CONFIG_MAPPING[family]
    code = "modeling_headpruned"
    auto_map = {"AutoConfig": f"{code}.{_PRUNED}{stock.__name__}"}
    config = _named(
        stock,
        {
            "model_type": f"{PREFIX}{family}",
            "kept_heads": None,
            "uniform_heads": None,
            "uniform_layout": None,
            "__annotations__": {
                **dict.fromkeys(("kept_heads", "uniform_heads"), _HEADS),
                "uniform_layout": str | None,
            },
            "code_by_auto_class": auto_map,
        },
        _PrunedConfig,
    )
    CONFIGS[stock] = config
    AutoConfig.register(config.model_type, config)
    for auto in vars(modeling_auto).values():
        if not (isinstance(auto, type) and issubclass(auto, _BaseAutoModelClass)):
            continue
        if auto._model_mapping is None or stock not in auto._model_mapping:
            continue
        model = auto._model_mapping[stock]
        if model not in MODELS:
            MODELS[model] = _named(model, {"config_class": config}, HeadPrunedModel)
        auto.register(config, MODELS[model])
        auto_map[auto.__name__] = f"{code}.{_PRUNED}{model.__name__}"
    tokenizer = TOKENIZER_MAPPING.get(stock, None)
    if tokenizer is not None:
        AutoTokenizer.register(config, tokenizer)


def _named(stock: type, namespace: dict[str, Any], *mixins: type) -> Any:
    """A subclass of ``stock`` with HeadPruned before its name, found in this module by that name.

    The first one of a name stays: a user's own class may be called as a stock one.
    """
    name = f"{_PRUNED}{stock.__name__}"
    made = type(name, (*mixins, stock), {"__module__": __name__, **namespace})
    globals().setdefault(name, made)
    return made


for _family in FAMILIES:
    _register(_family)


def _read_pruned_folders() -> None:
    """Let ``from_pretrained`` of a stock class give the pruned one where the config is of one.

    Every other call is passed on as it is.
    """
    stock_from_pretrained = PreTrainedModel.from_pretrained.__func__  # type: ignore[attr-defined]

    @functools.wraps(stock_from_pretrained)
    def from_pretrained(
        cls: type[PreTrainedModel],
        pretrained_model_name_or_path: Any,  # its name in transformers: callers use it as a keyword
        *inputs: Any,
        config: Any = None,
        **options: Any,
    ) -> Any:
        place = pretrained_model_name_or_path
        if _is_of_pruned(cls, place if config is None else config, options):
            return pruned_class(cls).from_pretrained(place, *inputs, config=config, **options)
        return stock_from_pretrained(cls, place, *inputs, config=config, **options)

    PreTrainedModel.from_pretrained = classmethod(from_pretrained)  # type: ignore[assignment,arg-type]


def _is_of_pruned(cls: type[PreTrainedModel], config: Any, options: dict[str, Any]) -> bool:
    """Tell if a stock class is asked for a model whose config is that of a pruned one.

    Reads local folders and transformers' local cache alone, so that no request is added.
    """
    of_class = CONFIGS.get(getattr(cls, "config_class", None) or PreTrainedConfig)
    if of_class is None or issubclass(cls, HeadPrunedModel) or config is None:
        return False
    if isinstance(config, PreTrainedConfig):
        return isinstance(config, of_class)
    places = ("cache_dir", "revision", "subfolder")
    given = {name: options[name] for name in places if name in options}
    try:
        content, _ = PreTrainedConfig.get_config_dict(config, **given, local_files_only=True)
    except Exception:  # transformers reports the problem itself
        return False
    return bool(content.get("model_type") == of_class.model_type)


_read_pruned_folders()
