"""Classes of pruned models that transformers saves and loads.

For each family, ``BertConfig`` say, there is a ``HeadPrunedBertConfig`` with the kept units in it,
of model type ``headpruned-bert``, and for each of the family's models a pruned one, registered
with the Auto classes under that type. A pruned class of models is made when it is first needed, so
that a family's model code is imported only then. The stock classes stay as they are, except that
their ``from_pretrained`` gives a pruned model if the config is of one. Without this package
transformers asks for ``trust_remote_code``, and then runs ``modeling_headpruned`` from the folder.
"""

from __future__ import annotations

import copy
import functools
import re
import threading
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, SupportsIndex

import torch
from transformers import (
    AutoConfig,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.models.auto import modeling_auto
from transformers.models.auto.auto_factory import _BaseAutoModelClass
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING

from headprune.errors import UsageError
from headprune.plan import PruningPlan
from hf_plugin.adapters import prepare_peft
from hf_plugin.families import attentions, stacks
from hf_plugin.head_names import CLASS_PREFIX, FAMILIES
from hf_plugin.lazy_entries import entries_of
from hf_plugin.plans import Heads, plan_after
from hf_plugin.pruned_configs import FIELDS, configured_plans, describe
from hf_plugin.pruned_files import ModelType, PrunedConfig, PrunedFiles, expect_layout
from hf_plugin.surgery import cut_to, make_uniform

FORMS = ("remove", "uniform")
_OF_PRUNED = (
    *FIELDS,
    "pruned_heads",
    "auto_map",
    "headprune",
    "transformers_weights",
)
CONFIGS: dict[type[PreTrainedConfig], type[PreTrainedConfig]] = {}
MODELS: dict[type[PreTrainedModel], type[PreTrainedModel]] = {}
"""For each stock class that was needed so far, the class of its pruned ones; see ``all_models``."""

_LISTED: dict[str, tuple[Any, type[PreTrainedConfig]]] = {}
"""By the name of a stock class, the mapping of an Auto class that lists it, and its config."""

_making = threading.RLock()


class _PrunedConfig(PrunedConfig):
    """A config that registers pruned models in peft when it is converted to a dict.

    peft calls ``to_dict`` to find a model's type.
    """

    def to_dict(self) -> dict[str, Any]:
        """Same as in the base class, but registers pruned models in peft first."""
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
        kept, present = configured_plans(config, self)
        cut_to(self, present)
        make_uniform(self, kept)
        empty = []
        for layers in attentions(self).values():
            for number, attention in enumerate(layers):
                for linear in attention.queries:
                    expect_layout(linear)
                if not attention.present:  # older files have empty tensors, which are not needed
                    names = attention.names
                    parts = "|".join(map(re.escape, (*names.all_inputs, *names.outputs)))
                    empty.append(rf"{re.escape(names.layers)}\.{number}\.({parts})\.(weight|bias)$")
        ignored = self._keys_to_ignore_on_load_unexpected
        self._keys_to_ignore_on_load_unexpected = {*(ignored or ()), *empty}

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Pickle by the stock class, as another process may not have made the pruned class yet."""
        own: Any = type(self)
        stock = own.__bases__[-1]
        reduced = super().__reduce_ex__(protocol)
        if MODELS.get(stock) is not own:  # a class made of a pruned one
            return reduced
        return _without_state, (stock,), *reduced[2:]


def _without_state(stock: type[PreTrainedModel]) -> PreTrainedModel:
    """Make an empty object of the pruned class of ``stock``; unpickling then sets its state."""
    pruned = pruned_class(stock)
    return pruned.__new__(pruned)


def prune(model: PreTrainedModel, plan: PruningPlan, *, form: str = "remove") -> PreTrainedModel:
    """Prune heads, feed-forward neurons and layers of ``model``, in place.

    The model becomes one of the ``HeadPruned`` classes, with a config of its own, so that
    ``save_pretrained`` writes what ``from_pretrained`` of the Auto classes reads after
    ``import hf_plugin``. If nothing is pruned it stays as it is. Prune the whole model, the one
    that will be saved, and make the optimizer afterwards: parameters of pruned layers are new.

    A dropped layer passes on its input. It stays in the model's list of layers without parameters,
    so that the other layers keep their numbers.

    Args:
        model: a base model or one with a task head. It may have been pruned before.
        plan: the units to keep, by their numbers in the unpruned model. Components that it does not
            name stay as they are.
        form: ``remove``: the units' weights are gone, the outputs are as with ``masked`` (Budhraja
            et al. 2020, equation 2). ``uniform``, for heads alone: see ``prune_heads``.

    Returns:
        ``model`` itself.

    Raises:
        UsageError: a family that cannot be pruned, a plan of another shape, a unit that was pruned
            before, or no such form. The model is then as it was.
    """
    if not isinstance(plan, PruningPlan):
        raise UsageError(f"give a PruningPlan, not {type(plan).__name__}")
    return _prune(model, plan, form=form)


def prune_heads(
    model: PreTrainedModel, request: PruningPlan | Heads, *, form: str = "remove"
) -> PreTrainedModel:
    """Prune heads of ``model``, in place, as ``prune`` does.

    Args:
        model: a base model or one with a task head. Pruning a second time adds up.
        request: a plan with the heads to keep, or a dict with the heads to prune,
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
    return _prune(model, request, form=form)


def _prune(model: PreTrainedModel, request: PruningPlan | Heads, *, form: str) -> PreTrainedModel:
    if form not in FORMS:
        raise UsageError(f"form: {form!r} is not one of {', '.join(FORMS)}")
    plan = plan_after(model, request, form=form)
    if form == "remove":
        cut_to(model, plan, spare_uniform=not isinstance(request, PruningPlan))
    else:
        make_uniform(model, plan)
    if plan.is_full:
        return model
    stock = model.config
    config = copy.deepcopy(stock)
    config.__class__ = CONFIGS.get(type(stock), type(stock))
    describe(model, config)
    for module in model.modules():
        if getattr(module, "config", None) is stock:
            setattr(module, "config", config)  # noqa: B010  (nn.Module's types forbid the plain form)
    _become(model, pruned_class(type(model)))
    _forget_alignment_heads(model)
    return model


def _forget_alignment_heads(model: PreTrainedModel) -> None:
    """Remove Whisper's list of heads for word timestamps if their numbers have changed.

    transformers takes the numbers for places among the heads and layers that remain, and would read
    other heads. Without the list it refuses to make such timestamps.
    """
    settings: Any = getattr(model, "generation_config", None)
    if getattr(settings, "alignment_heads", None) is None:
        return
    heads_change = any(len(each.present) < each.units for each in attentions(model).get("ED", ()))
    layers_change = any(not layer.is_kept for layer in stacks(model).get("DL", ()))
    if heads_change or layers_change:
        del settings.alignment_heads


def stock_config(config: PreTrainedConfig) -> PreTrainedConfig:
    """A copy of a config, converted to that of the unpruned model."""
    stock = copy.deepcopy(config)
    for plain, pruned in CONFIGS.items():
        if type(config) is pruned:
            stock.__class__ = plain
    for name in _OF_PRUNED:
        vars(stock).pop(name, None)
    return stock


def stock_class(pruned: type[PreTrainedModel]) -> type[PreTrainedModel]:
    """The class of unpruned models from which a class of pruned models is derived."""
    stock: Any = pruned
    while issubclass(stock, HeadPrunedModel):
        stock = stock.__bases__[-1]
    return stock  # type: ignore[no-any-return]


def pruned_class(stock: type[PreTrainedModel]) -> type[PreTrainedModel]:
    """The class of pruned models for a stock class; created if it is a user's own class.

    ``type(model).from_pretrained`` reads what such a model saves.
    """
    if issubclass(stock, HeadPrunedModel):
        return stock
    with _making:
        if stock not in MODELS:
            _make_listed(stock.__name__)
        if stock not in MODELS:
            config = CONFIGS.get(getattr(stock, "config_class", None) or PreTrainedConfig)
            if config is None:  # of no family: an Auto class
                return stock
            MODELS[stock] = _named(stock, {"config_class": config}, HeadPrunedModel)
    return MODELS[stock]


def all_models() -> dict[type[PreTrainedModel], type[PreTrainedModel]]:
    """``MODELS`` with the classes of all families, whose model code is imported."""
    for name in _LISTED:
        _make_listed(name)
    return MODELS


def _make_listed(name: str) -> None:
    """Make the pruned class of the stock class with this name, if an Auto class lists one."""
    if name not in _LISTED:
        return
    mapping, stock = _LISTED[name]
    with _making:
        for model in _as_tuple(mapping[stock]):
            if model.__name__ == name and model not in MODELS:
                MODELS[model] = _named(model, {"config_class": CONFIGS[stock]}, HeadPrunedModel)


def _as_tuple(listed: Any) -> tuple[Any, ...]:
    """The entry of an Auto class; of some families it has several, of which a config chooses."""
    return listed if isinstance(listed, tuple) else (listed,)


def __getattr__(name: str) -> Any:
    """Make a pruned class of models that is asked for by its name."""
    if name.startswith(CLASS_PREFIX):
        _make_listed(name.removeprefix(CLASS_PREFIX))
        if name in globals():
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _become(model: PreTrainedModel, pruned: type[PreTrainedModel]) -> None:
    if type(model) is pruned:
        return
    model.__class__ = pruned
    # transformers notes what a class can return besides its output (attention weights, hidden
    # states) when the first model of that class is made.
    with torch.device("meta"), suppress(TypeError):  # a class of the user's own may take more
        pruned(model.config)


def _register(family: str) -> None:
    """Tell the Auto classes about the pruned classes of ``family``."""
    stock = CONFIG_MAPPING[family]
    code = "modeling_headpruned"
    auto_map = {"AutoConfig": f"{code}.{CLASS_PREFIX}{stock.__name__}"}
    config = _named(
        stock,
        {
            "model_type": ModelType(family),
            **dict.fromkeys(FIELDS),
            "__annotations__": FIELDS,
            "code_by_auto_class": auto_map,
        },
        _PrunedConfig,
    )
    CONFIGS[stock] = config
    AutoConfig.register(config.model_type, config)
    for auto in vars(modeling_auto).values():
        if not (isinstance(auto, type) and issubclass(auto, _BaseAutoModelClass)):
            continue
        mapping: Any = auto._model_mapping
        if mapping is None or stock not in mapping:
            continue
        names = _listed_names(mapping, stock)
        for name in names:
            _LISTED.setdefault(name, (mapping, stock))
        entries_of(mapping).defer(config, functools.partial(_pruned_entry, mapping, stock))
        auto_map[auto.__name__] = f"{code}.{CLASS_PREFIX}{names[0]}"
    if stock in TOKENIZER_MAPPING and _listed_names(TOKENIZER_MAPPING, stock) != (None,):
        entries_of(TOKENIZER_MAPPING).defer(
            config, functools.partial(TOKENIZER_MAPPING.__getitem__, stock)
        )


def _listed_names(mapping: Any, stock: type[PreTrainedConfig]) -> tuple[Any, ...]:
    """The names of the classes that an Auto class lists for a config; imports no model code.

    A family without a tokenizer has None.
    """
    if stock in mapping._extra_content:  # registered by the user in place of transformers' own
        return tuple(model.__name__ for model in _as_tuple(mapping[stock]))
    return _as_tuple(mapping._model_mapping[mapping._reverse_config_mapping[stock.__name__]])


def _pruned_entry(mapping: Any, stock: type[PreTrainedConfig]) -> Any:
    """The entry of an Auto class for a pruned config, with the pruned classes."""
    listed = mapping[stock]
    if isinstance(listed, tuple):
        return tuple(map(pruned_class, listed))
    return pruned_class(listed)


def _named(stock: type, namespace: dict[str, Any], *mixins: type) -> Any:
    """Create a subclass of ``stock`` in this module, with HeadPruned before its name.

    The first one of a name stays: a user's own class may be called as a stock one.
    """
    name = f"{CLASS_PREFIX}{stock.__name__}"
    pruned = type(name, (*mixins, stock), {"__module__": __name__, **namespace})
    globals().setdefault(name, pruned)
    return pruned


for _family in FAMILIES:
    _register(_family)


def _read_pruned_folders() -> None:
    """Let ``from_pretrained`` of a stock class return the pruned class for pruned models.

    Every other call is passed on as it is. Models with learned gates are refused, as they would
    lose them.
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

        def is_pruned() -> bool:
            return is_of_pruned(cls, place if config is None else config, options)

        def load_pruned() -> Any:
            return pruned_class(cls).from_pretrained(place, *inputs, config=config, **options)

        if is_pruned():
            return load_pruned()
        try:
            loaded = stock_from_pretrained(cls, place, *inputs, config=config, **options)
        except Exception:
            # The attempt has put the config of a model on the hub into the cache.
            if is_pruned():
                return load_pruned()
            raise
        _refuse_gates(loaded[0] if isinstance(loaded, tuple) else loaded, place)
        return loaded

    PreTrainedModel.from_pretrained = classmethod(from_pretrained)  # type: ignore[assignment,arg-type]


GATES = "headprune_gates"
"""The entry of a config, and the name of the module, of learned gates."""

reading_gates: ContextVar[bool] = ContextVar("reading_gates", default=False)
"""True where the gates of a folder are read apart from its model."""


def _refuse_gates(model: PreTrainedModel, place: object) -> None:
    components = getattr(model.config, GATES, None)
    if components and not reading_gates.get():
        raise UsageError(
            f"{place}: has learned gates on {components}, which would be lost; close them first: "
            f"headprune gates {place} -o plan.json --model OUT"
        )


def is_of_pruned(cls: type[PreTrainedModel], config: Any, options: dict[str, Any]) -> bool:
    """Check if a stock class is to load a model with the config of a pruned one.

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
