"""Builds mlx_lm's model of a configuration, and reads its shapes; `trial` runs this.

MLX computes an array only when its values are needed. So a model of any size can be built and
can read a token without using memory; its caches then have the same shapes as in real use.
"""

from __future__ import annotations

import copy
import math
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import MISSING, Field, asdict, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.positional_encoding import RoPE
from mlx.utils import tree_flatten, tree_map_with_path
from mlx_lm import utils
from mlx_lm.models.base import BaseModelArgs
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    KVCache,
    RotatingKVCache,
    make_prompt_cache,
)
from mlx_lm.models.switch_layers import SwitchLinear

from h2o_pack.errors import Problems, UserError, in_one_line, shown, unreadable
from h2o_pack.files.paths import CONFIG
from h2o_pack.model import Layer
from h2o_py.families import why_unfit

MAX_COUNT = 1 << 24
MAX_LAYERS = 10_000
LARGE = 1e300
CONTEXT = (
    "max_position_embeddings", "max_context_length", "n_positions", "block_size",
    "max_seq_len", "max_sequence_length", "model_max_length",
)  # fmt: skip
"""Keys for the longest text, which not all of mlx_lm's models read."""
CANNOT_BUILD = f"mlx_lm cannot build a model from {CONFIG}"

if not mx.metal.is_available():  # shapes are known without running kernels

    def no_kernel(**_: Any) -> Callable[..., list[mx.array]]:
        """Return arrays of the shapes that a kernel declares, without running it."""
        return lambda **call: [
            mx.zeros(*output)
            for output in zip(call["output_shapes"], call["output_dtypes"], strict=True)
        ]

    mx.fast.metal_kernel = no_kernel  # type: ignore[assignment]


def describe(config: dict[str, Any], dtype: str, *, fill: bool = False) -> dict[str, Any]:
    """Describe mlx_lm's model of a configuration, as the fields of `ModelConfig`.

    fill: fill in missing keys that change no shape, such as epsilons. Raises UserError: an
    impossible value, all missing keys, or a model that mlx_lm or h2o-pack does not support.
    """
    config = utils._decode_tagged_floats(config)  # noqa: SLF001
    try:
        with checked_arguments(config, fill=fill):
            model_class, arguments_class = utils._get_classes(config)  # noqa: SLF001
            model = model_class(arguments_class.from_dict(config))
        cast(model, getattr(mx, dtype))
        caches = make_prompt_cache(model)
        refuse_unfit(model)
        watch = Watch(caches)
        with watch.all_of(model):
            logits = model(mx.array([[0]]), cache=caches)
        layers = [layer_of(cache) for cache in caches]
        layers += [Layer("none")] * (len(model.layers) - len(layers))
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # upstream's code may raise anything
        raise unreadable(CONFIG, f"{CANNOT_BUILD}: {in_one_line(error)}") from error
    described = {
        "layers": [asdict(layer) for layer in layers],
        "heads": watch.heads,
        "hidden_size": watch.hidden,
        "intermediate_size": max(map(watch.width, filter(None, model.layers)), default=0),
        "vocabulary": logits.shape[-1],
        "context": context_of(config, model),
        "experts": watch.experts,
        "experts_per_token": watch.experts_per_token,
    }
    check_sizes(described, layers)
    return described


def check_sizes(described: Mapping[str, Any], layers: list[Layer]) -> None:
    """Refuse a model without layers, and an evicting model that lacks a size."""
    if not layers:
        raise unreadable(CONFIG, "config.json gives the model no layers")
    rows = [layer for layer in layers if layer.kv_heads or layer.kind in ("full", "sliding")]
    if not rows:
        return
    problems = Problems(CONFIG)
    for name, what in (
        ("hidden_size", "hidden_size"),
        ("intermediate_size", "intermediate_size or another width of the feed-forward layers"),
        ("vocabulary", "a vocabulary"),
        ("context", CONTEXT[0]),
    ):
        if not described[name]:
            problems.add(f"config.json lacks {what}")
    if not all(layer.kv_heads and layer.key_dim and layer.value_dim for layer in rows):
        problems.add("config.json gives its attention heads a size of 0")
    problems.refuse()


def refuse_unfit(model: Module) -> None:
    """Refuse a model that would compute wrong results with evicted rows."""
    why = why_unfit(model)
    if why is not None:
        raise unreadable(CONFIG, f"the model cannot work with evicted rows: {why}")


def cast(model: Module, dtype: mx.Dtype) -> None:
    """Convert parameters to the dtype that mlx_lm.convert would give them."""
    casts = getattr(model, "cast_predicate", lambda _name: True)

    def converted(name: str, parameter: mx.array) -> mx.array:
        floating = mx.issubdtype(parameter.dtype, mx.floating)
        return parameter.astype(dtype) if floating and casts(name) else parameter

    model.update(tree_map_with_path(converted, model.parameters()))


def layer_of(cache: Any) -> Layer:
    """Describe a layer by the arrays in its cache, for one sequence after one token."""
    members = list(cache.caches) if isinstance(cache, CacheList) else [cache]
    states = [member for member in members if isinstance(member, ArraysCache)]
    arrays: list[Any] = [
        array for state in states for array in state.cache if array is not None
    ]
    state = sum(array.nbytes for array in arrays)
    rows = [member for member in members if not isinstance(member, ArraysCache)]
    if not rows:
        return Layer("recurrent", state_bytes=state)
    kinds = [type(row) for row in rows]
    if kinds not in ([KVCache], [RotatingKVCache]):
        names = " and ".join(kind.__name__ for kind in kinds)
        raise unreadable(CONFIG, f"mlx_lm gives a layer a {names}, which cannot evict")
    (own,) = rows
    if own.keys is None:
        return Layer("none")
    window = own.max_size if isinstance(own, RotatingKVCache) else 0
    heads, key_dim, value_dim = own.keys.shape[1], own.keys.shape[3], own.values.shape[3]
    kind: Any = "sliding" if window else "full"
    return Layer(kind, heads, key_dim, value_dim, window, state)


def context_of(config: Mapping[str, Any], model: Module) -> int:
    """Return the configured context in tokens, or mlx_lm's default; 0 if unknown."""
    text = config.get("text_config")
    sources = [text if isinstance(text, dict) else {}, config]
    for module in model.modules():
        own = getattr(module, "args", None) or getattr(module, "config", None)
        sources.append(vars(own) if is_dataclass(own) else {})
    for key, value in ((key, source.get(key)) for source in sources for key in CONTEXT):
        if value is not None and (expected := misfit(value, int)):
            raise unreadable(CONFIG, f"{key} is {shown(value)} but should be {expected}")
        if value:
            return int(value)
    return 0


class Watch:
    """Records the sizes of a model's parts while the model reads a token.

    heads: the most query heads of a layer. hidden: elements of a layer's input. experts,
    experts_per_token: the number of a layer's experts, and how many of them process a token.
    """

    def __init__(self, caches: list[Any]) -> None:
        members = [m for c in caches for m in (c.caches if isinstance(c, CacheList) else ())]
        self._caches = {id(cache) for cache in (*caches, *members)}
        self._layers: set[int] = set()
        self._children: set[int] = set()
        self._child = 0
        self._mixers: set[int] = set()
        self.heads = self.hidden = self.experts = self.experts_per_token = 0

    @contextmanager
    def all_of(self, model: Module) -> Iterator[None]:
        """Watch a model's layers and their children, all attention, and all experts."""
        layers = [layer for layer in model.layers if layer is not None]
        parts = [part for layer in layers for part in children(layer)]
        self._layers, self._children = set(map(id, layers)), set(map(id, parts))
        with ExitStack() as stack:
            for kind in {type(part) for part in (*layers, *parts)}:
                stack.enter_context(observing_calls(kind, "__call__", self.record_part))
            stack.enter_context(observing_calls(SwitchLinear, "__call__", self.record_experts))
            stack.enter_context(
                observing_calls(mx.fast, "scaled_dot_product_attention", self.record_attention)
            )
            yield

    def record_part(self, module: Module, *positional: Any, **named: Any) -> None:
        """Record the size of a layer's input, and which of its children receive a cache."""
        values = (*positional, *named.values())
        if id(module) in self._layers:
            arrays = (value.shape[-1] for value in values if isinstance(value, mx.array))
            self.hidden = next(arrays, 0)
        elif id(module) in self._children:
            self._child = id(module)
            if any(id(value) in self._caches for value in values):
                self._mixers.add(id(module))

    def record_experts(
        self, module: Any, _x: mx.array, indices: mx.array, *_: Any, **__: Any
    ) -> None:
        """Record the number of experts, and how many of them process a token."""
        self.experts = max(self.experts, module.num_experts)
        self.experts_per_token = max(self.experts_per_token, indices.shape[-1])

    def record_attention(self, queries: mx.array, *_: Any, **__: Any) -> None:
        """Record the number of query heads, and that the current child attends."""
        self.heads = max(self.heads, queries.shape[1])
        self._mixers.add(self._child)

    def width(self, layer: Module) -> int:
        """Return the width of a layer's feed-forward; with experts, the width for one token.

        The width is the number of inputs of the projections to hidden states. Projections whose
        inputs are hidden states too count only if there are no other projections.
        """
        inner, equal = 0, 0
        for part in children(layer):
            if id(part) in self._mixers or isinstance(part, Linear):
                continue
            for module in part.modules():
                outputs, inputs = projection(module)
                if outputs != self.hidden:
                    continue
                if isinstance(module, SwitchLinear):
                    inputs *= self.experts_per_token
                if inputs == self.hidden:
                    equal = inputs
                else:
                    inner += inputs
        return inner or equal


def projection(module: Module) -> tuple[int, int]:
    """Return the outputs and inputs of a matrix; 0 for any other module."""
    if isinstance(module, Linear):
        outputs, inputs = module.weight.shape
        return outputs, inputs
    if isinstance(module, SwitchLinear):
        return module.output_dims, module.input_dims
    return getattr(module, "out_features", 0), getattr(module, "in_features", 0)


def children(layer: Module) -> list[Module]:
    """Return the modules that are directly in a module."""
    return [part for part in layer.values() if isinstance(part, Module)]


@contextmanager
def observing_calls(owner: Any, name: str, look: Callable[..., None]) -> Iterator[None]:
    """Call `look` with the arguments of a function before each of its calls."""
    function = getattr(owner, name)

    def looking(*arguments: Any, **named: Any) -> Any:
        look(*arguments, **named)
        return function(*arguments, **named)

    setattr(owner, name, looking)
    try:
        yield
    finally:
        setattr(owner, name, function)


@contextmanager
def checked_arguments(config: Mapping[str, Any], *, fill: bool) -> Iterator[None]:
    """Check all arguments that mlx_lm reads from a configuration before it builds with them."""
    from_dict = BaseModelArgs.__dict__["from_dict"]

    def checking(kind: type, values: Mapping[str, Any]) -> Any:
        key = next((key for key, value in config.items() if value is values), "")
        if fill and isinstance(values, dict):
            values = {**shapeless(kind), **values}
        check_arguments(kind, values, key)
        return from_dict.__func__(kind, values)

    BaseModelArgs.from_dict = classmethod(checking)  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        BaseModelArgs.from_dict = from_dict  # type: ignore[method-assign]


def is_required(field: Field[Any]) -> bool:
    """Whether a field of a dataclass has no default."""
    return field.default is MISSING and field.default_factory is MISSING


def shapeless(kind: type) -> dict[str, Any]:
    """Return values for a dataclass's required fields that change no shape."""
    values = {bool: False, float: 1.0, NoneType: None}
    hints = typing.get_type_hints(kind)
    return {"rope_theta": 10_000.0} | {
        field.name: value
        for field in fields(kind)
        for hint, value in values.items()
        if is_required(field)
        and hint in (hints[field.name], *typing.get_args(hints[field.name]))
    }


def check_arguments(kind: type, values: object, inside: str) -> None:
    """Refuse values that a dataclass does not allow; inside: the key with the values."""
    problems = Problems(CONFIG)
    if not isinstance(values, dict):
        problems.fail(f"{inside or CONFIG} is {shown(values)} but should be an object")
    hints = typing.get_type_hints(kind)
    for field in fields(kind):
        place = f"{inside}.{field.name}" if inside else field.name
        value, hint = values.get(field.name), hints[field.name]
        if value is None:
            is_given = field.name in values and hint not in (int, float)
            if is_required(field) and not is_given:
                problems.add(f"config.json lacks {place}")
        elif value != field.default and (expected := misfit(value, hint, field.name)):
            problems.add(f"{place} is {shown(value)} but should be {expected}")
    problems.refuse()


def misfit(value: Any, hint: Any, name: str = "") -> str:
    """Say what an argument should be, from its type and name; "" if the value is possible.

    A value must have the declared type, and not be impossibly large for a model.
    """
    kind = typing.get_origin(hint) or hint
    number = type(value) in (int, float)
    if kind in (typing.Union, UnionType):
        misfits = [misfit(value, arg, name) for arg in typing.get_args(hint)]
        return misfits[0] if all(misfits) else ""
    if kind is int:  # mlx_lm declares some fractions as int
        least = -1 if name.endswith("_id") else 0
        most = MAX_LAYERS if "layer" in name else MAX_COUNT
        fits, wanted = number and least <= value <= most, f"a whole number of 0 to {most:,}"
    elif kind is float:
        fits, wanted = number and (abs(value) < LARGE or math.isinf(value)), "a number"
    elif kind in (list, tuple):
        inner = [arg for arg in typing.get_args(hint) if arg is not ...] or [Any]
        is_list = isinstance(value, (list, tuple, str)) and len(value) <= MAX_LAYERS
        fits = is_list and all(
            any(not misfit(element, kind) for kind in inner) for element in value
        )
        wanted = f"a list of at most {MAX_LAYERS:,}"
    else:
        names = {bool: "true or false", str: "a text", dict: "an object", NoneType: "null"}
        fits, wanted = kind not in names or isinstance(value, kind), names.get(kind, "")
    return "" if fits else wanted


def arguments(folder: str) -> dict[str, Any]:
    """Return the arguments with which mlx_lm builds a model, and what it builds from them.

    folder: contains config.json, and files of tensors whose elements are all 0
    (`loading.write_hollow`); without tensors, "given" and "quantized" are empty. calls: for the
    model and its language model, the key of config.json whose object it reads ("" for the
    whole), the values of its arguments after its own defaults, and the defaults of optional
    arguments. ropes: the kinds of rotary embeddings. given, needed: the shapes of the tensors
    in the files, as mlx_lm's own code converts them, and of those that the model needs.
    quantized: the settings of each quantized module, by path.
    """
    given: dict[str, tuple[int, ...]] = {}
    calls: list[tuple[Any, Mapping[str, Any], dict[str, Any]]] = []

    def classes(config: dict[str, Any]) -> tuple[type, type]:
        model, arguments = utils._get_classes(config)  # noqa: SLF001  this function wraps it

        class Described(model):  # type: ignore[misc, valid-type]
            def sanitize(self, weights: Any) -> Any:
                change = getattr(super(), "sanitize", None)
                return change(weights) if change and weights else weights

            def load_weights(self, weights: Any, **_: Any) -> Any:
                given.update({name: array.shape for name, array in weights})
                return self

        return Described, arguments

    try:
        with recording(calls):
            model, config = utils.load_model(
                Path(folder), lazy=True, strict=False, get_model_classes=classes
            )
    except (Exception, SystemExit) as error:
        raise unreadable(CONFIG, f"{CANNOT_BUILD}: {in_one_line(error)}") from error
    whole = calls[0][1]
    inside = {id(value): key for key, value in whole.items()}
    leaves: Any = tree_flatten(model.leaf_modules(), is_leaf=Module.is_module)
    parameters: Any = tree_flatten(model.parameters())
    return {
        "calls": [
            {"inside": inside.get(id(values), ""), "values": result, "defaults": defaults(kind)}
            for kind, values, result in calls
        ],
        "ropes": sorted(set(filter(None, map(rope_kind, model.modules())))),
        "context": context_of(config, model),
        "given": given,
        "needed": {
            name: array.shape for name, array in parameters if isinstance(array, mx.array)
        },
        "quantized": {
            path: {name: getattr(leaf, name) for name in ("group_size", "bits", "mode")}
            | ({"global_scale": True} if "global_scale" in leaf else {})
            for path, leaf in leaves
            if "scales" in leaf and hasattr(leaf, "bits")
        },
    }


@contextmanager
def recording(calls: list[tuple[Any, Mapping[str, Any], dict[str, Any]]]) -> Iterator[None]:
    """Record the class, the given values and the arguments that mlx_lm reads a model from."""
    from_dict = BaseModelArgs.__dict__["from_dict"]

    def recorded(kind: type, values: Mapping[str, Any]) -> Any:
        result = from_dict.__func__(kind, values)
        own: Any = kind
        values_of = {field.name: getattr(result, field.name) for field in fields(own)}
        calls.append((kind, values, copy.deepcopy(values_of)))
        return result

    BaseModelArgs.from_dict = classmethod(recorded)  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        BaseModelArgs.from_dict = from_dict  # type: ignore[method-assign]


def defaults(kind: Any) -> dict[str, Any]:
    """Return the defaults of a dataclass's optional fields."""
    made = {f.name: f.default_factory for f in fields(kind) if f.default_factory is not MISSING}
    stated = {f.name: f.default for f in fields(kind) if f.default is not MISSING}
    return stated | {name: make() for name, make in made.items()}


ROPES = {
    "Llama3RoPE": "llama3",
    "YarnRoPE": "yarn",
    "SuScaledRoPE": "longrope",
    "DynamicNTKScalingRoPE": "dynamic",
    "ProportionalRoPE": "proportional",
    "DynamicNTKAlphaRoPE": "alpha",
    "NoPE": "",
}


def rope_kind(module: Module) -> str:
    """Return the kind of a rotary embedding, as config.json names it; "" for other modules."""
    if isinstance(module, RoPE):
        return "default" if module.scale == 1 else "linear"
    name = type(module).__name__
    return ROPES.get(name, name if "rope" in name.lower() else "")


def step(folder: str) -> dict[str, Any]:
    """Compute a token; return the shape of its logits, and whether all of them are finite."""
    model, _ = utils.load_model(Path(folder), lazy=True)
    logits = model(mx.array([[0]]))
    return {"shape": logits.shape, "finite": bool(mx.isfinite(logits).all())}
