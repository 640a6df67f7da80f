"""Writes a package's config.json, with every value that mlx_lm's model computes with.

mlx-swift-lm decodes config.json by itself: it has other defaults than mlx_lm, reads fewer keys
and computes fewer kinds of rotary embeddings. So the package's file states each value that its
decoder reads (see `table`), and a model that it would compute in another way is refused. mlx_lm
reads the same values from this file as from the original.
"""

from __future__ import annotations

import copy
import json
import math
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from h2o_pack.errors import Problems, shown
from h2o_pack.facts import SwiftModel, swift_models
from h2o_pack.model import Tensor
from h2o_pack.models.loading import hollow_model
from h2o_pack.models.trial import attempt
from h2o_pack.resolved.table import Decoder, Key, decoder, decoder_of

LARGEST = 3.4028234663852886e38
"""The largest 32-bit float; Swift refuses a larger number where it reads a Float."""
LARGEST_DOUBLE = 1.7976931348623157e308
BOUNDS = ("time_step_limit", "time_step_limit_min", "time_step_limit_max", "time_step_min",
          "time_step_max")  # fmt: skip
"""Keys whose values only bound others, so that the largest number stands for infinity."""
ANOTHER_MODEL = "Choose another model."
CHANGE = "Change it, or choose another model."
UNUSED = ("model_type", "max_position_embeddings")
"""Arguments that change no result where mlx-swift-lm does not read them."""
FACTORS = {"mscale": 1, "mscale_all_dim": 0, "beta_fast": 32, "beta_slow": 1}
"""Keys of a scaling that mlx_lm reads, with its defaults."""
FLOAT_TAG = "__float__"


@dataclass(frozen=True)
class Resolved:
    """A package's config.json, and notes for the user."""

    document: dict[str, Any]
    notes: tuple[str, ...] = ()


def resolve_configuration(
    document: Mapping[str, Any], tensors: Mapping[str, tuple[Tensor, ...]], where: str
) -> Resolved:
    """Return the config.json of a package.

    document: the model's config.json. tensors: the tensors in the headers of its files, by
    file; without any, "quantization" stays as it is. where: the model, for errors.

    Raises UserError: mlx_lm cannot build the model, or all values that mlx-swift-lm refuses or
    with which it would compute something else.
    """
    own = copy.deepcopy(dict(untagged(document)))
    model_type = str(own.get("model_type"))
    decoder, swift = decoder_of(model_type), swift_models()[model_type]
    assert decoder is not None  # noqa: S101 - there is one for each of swift_models
    with hollow_model(own, tensors) as folder:
        built = attempt("arguments", where, folder=str(folder))
    resolution = Resolution(own, built, decoder, swift, where)
    resolution.resolve(has_tensors=bool(tensors))
    return Resolved(finite(own), tuple(resolution.notes))


def to_json(document: Mapping[str, Any]) -> bytes:
    """Return the bytes of a resolved config.json: the same for the same values."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False, sort_keys=True)
    return (text + "\n").encode("utf-8", "surrogatepass")


class Resolution:
    """Changes a document in place, step by step; see `resolve_configuration`.

    built: the result of `h2o_pack.models.built.arguments`.
    """

    def __init__(
        self,
        document: dict[str, Any],
        built: Mapping[str, Any],
        decoder: Decoder,
        swift: SwiftModel,
        where: str,
    ) -> None:
        self.document = document
        self.built = built
        self.outer, self.language = built["calls"][0], built["calls"][-1]
        self.values: dict[str, Any] = self.language["values"]
        inside = self.language["inside"]
        self.place: dict[str, Any] = document[inside] if inside else document
        self.prefix = f"{inside}." if inside else ""
        self.decoder = next(iter(decoder.inner.values()), decoder)
        self.nested = decoder.inside or next(iter(decoder.inner), "")
        self.swift = swift
        self.problems = Problems(where)
        self.notes: list[str] = []

    @property
    def file(self) -> str:
        """The name of the model's file in mlx-swift-lm."""
        return f"mlx-swift-lm's {self.decoder.file}.swift"

    def resolve(self, *, has_tensors: bool) -> None:
        """Take all steps; raise UserError with all problems."""
        self.choose_object()
        self.check_rope_parameters()
        for name, key in self.decoder.keys.items():
            self.write(name, key)
        self.write_rope()
        if change := FAMILIES.get(self.decoder.name):
            change(self)
        self.check_rotated()
        self.check_unread()
        self.write_sizes()
        if has_tensors:
            self.write_quantization()
        self.problems.refuse()

    def choose_object(self) -> None:
        """Leave only the object that mlx_lm reads, and write what stands beside it."""
        if self.place is self.document and isinstance(self.document.get(self.nested), dict):
            del self.document[self.nested]
            self.notes.append(
                f"mlx_lm does not read {self.nested} of this config.json, so the package's "
                "config.json leaves it out."
            )
        if self.outer is not self.language:
            for name, value in self.outer["values"].items():
                if isinstance(value, bool | int | float | str):
                    self.document[name] = value

    def write(self, name: str, key: Key) -> None:
        """Write the value of a key that Swift reads, in a form that it can read."""
        if name == "model_type":
            own = self.values.get(name) or self.document[name]
            self.place[name] = self.place.get(name) or own
            return
        has = name in self.values
        value = self.values[name] if has else self.place.get(name)
        if name in self.swift.fixed:
            has, value = True, self.swift.fixed[name]
        if value is None:
            value = self.fallback(name)
        if value is not None:
            self.write_fitting(name, key, value, is_used=has)
            return
        if name in self.place:
            self.place[name] = None
        if key.required or (has and key.default is not None):
            self.problems.add(
                f"config.json gives {self.prefix}{name} no value, which {self.file} needs",
                ANOTHER_MODEL,
            )

    def fallback(self, name: str) -> Any:
        """Return what mlx_lm's models compute with where an argument is None."""
        values = self.values
        if name == "head_dim":
            return values["hidden_size"] // values["num_attention_heads"]
        if name == "num_key_value_heads":
            return values["num_attention_heads"]
        if name == "max_position_embeddings":
            return self.built["context"] or None
        return self.swift.absent.get(name)

    def write_fitting(self, name: str, key: Key, value: Any, *, is_used: bool) -> None:
        """Write a value as one of the key's kinds; a value that does not fit is a problem.

        is_used: whether mlx_lm reads the value. If not, Swift may use its default.
        """
        if not is_used and isinstance(value, list) and key.kind == "int":
            value = value[0] if value else None  # such as the first of several end tokens
        for kind in key.kinds:
            try:
                self.place[name] = fitting(kind, value, may_bound=name in BOUNDS)
            except ValueError:
                continue
            return
        self.place.pop(name, None)
        if is_used:
            self.problems.add(
                f"{self.prefix}{name} is {shown(value)}, which {self.file} cannot read as "
                f"{' or '.join(WORDS.get(kind, 'an object') for kind in key.kinds)}",
                CHANGE,
            )

    def check_rope_parameters(self) -> None:
        """Refuse rope_parameters that mlx_lm does not read and computes otherwise without."""
        given = self.place.get("rope_parameters")
        if not isinstance(given, dict) or "rope_parameters" in self.values:
            return
        nested = [value for value in given.values() if isinstance(value, dict)]
        bases = [self.values.get(name) for name in ("rope_theta", "rope_local_base_freq")]
        for parameters in nested or [given]:
            theta = parameters.get("rope_theta")
            if theta is not None and theta not in bases:
                self.problems.add(
                    f"config.json states rope_theta {shown(theta)} in rope_parameters only, "
                    f"which mlx_lm does not read for this model type: it would compute with "
                    f"{shown(bases[0])}",
                    "Add rope_theta to config.json beside rope_parameters.",
                )
            kind = parameters.get("rope_type", parameters.get("type", "default"))
            if kind not in ("default", "mrope", *self.built["ropes"]):
                self.problems.add(
                    f"config.json states rope_type {shown(kind)} in rope_parameters only, "
                    "which mlx_lm does not read for this model type",
                    "Add rope_scaling to config.json beside rope_parameters.",
                )

    def write_rope(self) -> None:
        """Write the scaling of rotary embeddings; refuse a kind that Swift does not compute."""
        if "rope_scaling" not in self.decoder.keys and not self.decoder.rope:
            return
        kinds = [kind for kind in self.built["ropes"] if kind != "default"]
        for kind in kinds:
            if kind not in self.decoder.rope:
                only = " and ".join(("default", *self.decoder.rope))
                self.problems.add(
                    f'config.json asks for rotary embeddings of the kind "{kind}", but '
                    f"{self.file} computes only: {only}",
                    ANOTHER_MODEL,
                )
        for name in ("rope_scaling", "rope_parameters"):
            key = self.decoder.keys.get(name)
            if key is None or key.kind not in (
                "mapping",
                "float",
                "RopeScalingWithFactorArrays",
            ):
                continue
            scaling = self.values.get(name)
            if name == "rope_scaling" and not kinds:
                self.note_ignored(self.place.get(name))
                if name in self.place:
                    self.place[name] = None
            elif isinstance(scaling, dict):
                self.place[name] = self.scaling_of(name, scaling)

    def scaling_of(self, name: str, scaling: Mapping[str, Any]) -> dict[str, Any]:
        """Return a scaling without values that Swift's dictionary cannot hold.

        The kind stands under both names, because some models read only one of them.
        """
        kept = {key: scaling_value(value) for key, value in scaling.items()}
        for key, value in scaling.items():
            if kept[key] is None and isinstance(value, int | float):
                self.problems.add(
                    f"{self.prefix}{name}.{key} is {shown(value)}, which {self.file} "
                    "cannot read",
                    CHANGE,
                )
        kept = {key: value for key, value in kept.items() if value is not None}
        read = self.decoder.rope_keys
        for key, default in FACTORS.items():
            if read and key not in read and kept.get(key, default) != default:
                self.problems.add(
                    f"{self.prefix}{name}.{key} is {shown(kept[key])}, but {self.file} does "
                    f"not read it and computes with {default}",
                    ANOTHER_MODEL,
                )
        kind = kept.get("type") or kept.get("rope_type")
        return kept if kind is None else {**kept, "type": kind, "rope_type": kind}

    def note_ignored(self, scaling: object) -> None:
        """Add a note for a scaling that mlx_lm does not compute."""
        if not isinstance(scaling, dict):
            return
        kind = scaling.get("type") or scaling.get("rope_type") or "default"
        if kind not in ("default", "mrope"):
            self.notes.append(
                f"mlx_lm ignores rope_scaling of the kind {shown(kind)} for this model type, "
                "and so does the package."
            )

    def check_rotated(self) -> None:
        """Refuse a partial rotation of which Swift's 32-bit floats give another size."""
        factor = self.place.get("partial_rotary_factor")
        if "partial_rotary_factor" not in self.decoder.keys or not factor:
            return
        head = self.place.get("head_dim") or self.fallback("head_dim")
        ours, theirs = int(head * factor), int(single(single(head) * single(factor)))
        if ours != theirs:
            self.problems.add(
                f"partial_rotary_factor is {shown(factor)}: mlx_lm rotates {ours} of {head} "
                f"elements, but {self.file} rotates {theirs}",
                CHANGE,
            )

    def check_unread(self) -> None:
        """Refuse arguments that Swift does not read, with values that it does not assume."""
        known = {*UNUSED, *self.decoder.keys, *self.swift.ignored}
        for name in self.values.keys() - known:
            value = self.values[name]
            defaults = {**self.language["defaults"], **self.swift.assumed}
            if name not in defaults or value != defaults[name]:
                assumed = (
                    f" and computes with {shown(defaults[name])}" if name in defaults else ""
                )
                self.problems.add(
                    f"{self.prefix}{name} is {shown(value)}, but {self.file} does not read "
                    f"it{assumed}",
                    ANOTHER_MODEL,
                )

    def write_sizes(self) -> None:
        """Write the sizes that the app itself reads."""
        if self.built["context"]:
            self.place["max_position_embeddings"] = self.built["context"]
        self.place.setdefault("vocab_size", self.values.get("vocab_size"))

    def write_quantization(self) -> None:
        """Write bits, group size and mode of every quantized module.

        mlx_lm infers them from the tensors' shapes, but Swift does not. The most frequent ones
        are the default. Swift may call a module otherwise than mlx_lm, so both names are given.
        """
        if self.document.get("quantize_activations"):
            self.problems.add(
                "config.json asks for quantized activations, which mlx-swift-lm does not have",
                ANOTHER_MODEL,
            )
        modules: Mapping[str, dict[str, Any]] = self.built["quantized"]
        if not modules:
            return
        if any("global_scale" in settings for settings in modules.values()):
            self.problems.add(
                "the weights have global scales, which mlx-swift-lm cannot load", ANOTHER_MODEL
            )
        counts = Counter(json.dumps(as_entry(settings)) for settings in modules.values())
        default = json.loads(counts.most_common(1)[0][0])
        quantization = dict(default)
        for path, settings in modules.items():
            entry = as_entry(settings)
            if entry != default:
                for name in dict.fromkeys((path, path.removeprefix(self.swift.prefix))):
                    quantization[name] = entry
        self.document["quantization"] = quantization


def as_entry(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a quantized module as config.json states them."""
    entry = {"group_size": settings["group_size"], "bits": settings["bits"]}
    return entry if settings["mode"] == "affine" else {**entry, "mode": settings["mode"]}


# Values that Swift can read

WORDS = {
    "int": "a whole number", "float": "a number", "bool": "true or false", "string": "a text",
    "ints": "a list of whole numbers", "floats": "a list of numbers",
    "strings": "a list of texts",
}  # fmt: skip
LISTS = {"ints", "floats", "strings"}


def fitting(kind: str, value: Any, *, may_bound: bool = False) -> Any:
    """Return a value as Swift reads it as a kind; ValueError if it cannot.

    may_bound: whether the value only bounds others, so that it may be infinite.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    result: Any = None
    if kind in LISTS:
        if isinstance(value, list | tuple):
            one = kind.removesuffix("s")
            result = [fitting(one, element, may_bound=may_bound) for element in value]
    elif kind == "bool":
        result = bool(value) if value in (True, False) else None
    elif kind == "string":
        result = value if isinstance(value, str) else None
    elif kind == "int":
        result = int(value) if number and math.isfinite(value) and value == int(value) else None
    elif kind == "float":
        result = bounded(value, may_bound=may_bound) if number else None
    elif isinstance(value, dict):
        result = fitting_object(kind, value)
    if result is None:
        raise ValueError(kind)
    return result


def fitting_object(kind: str, value: dict[str, Any]) -> dict[str, Any]:
    """Return an object as Swift reads it; `write_rope` and families write mappings."""
    if kind in ("mapping", "mappings"):
        return value
    keys = decoder(kind).keys
    return {
        name: fitting(keys[name].kind, element) if name in keys else element
        for name, element in value.items()
        if element is not None
    }


def scaling_value(value: Any) -> Any:
    """Return a value of a scaling; None if Swift's dictionary cannot hold it."""
    for kind in ("string", "float", "floats"):
        with suppress(ValueError):
            return value if isinstance(value, bool) else fitting(kind, value)
    return None


def bounded(value: float, *, may_bound: bool) -> float:
    """Return a number that fits into a 32-bit float; ValueError if none stands for it."""
    if math.isnan(value) or (abs(value) > LARGEST and not may_bound):
        raise ValueError("too large")
    return max(-LARGEST, min(LARGEST, value))


def single(value: float) -> float:
    """Return the 32-bit float nearest to a number."""
    number: float = struct.unpack("f", struct.pack("f", value))[0]
    return number


def untagged(value: Any) -> Any:
    """Return a value with numbers for transformers' tags of numbers that are not finite."""
    if isinstance(value, Mapping):
        if set(value) == {FLOAT_TAG} and value[FLOAT_TAG] in ("Infinity", "-Infinity", "NaN"):
            return float(value[FLOAT_TAG])
        return {name: untagged(element) for name, element in value.items()}
    return [untagged(element) for element in value] if isinstance(value, list) else value


def finite(value: Any) -> Any:
    """Return a value in plain JSON: the largest number for infinity, null for NaN."""
    if isinstance(value, dict):
        return {name: finite(element) for name, element in value.items()}
    if isinstance(value, list | tuple):
        return [finite(element) for element in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else math.copysign(LARGEST_DOUBLE, value)
    return value


# Families that state a value in another way


def bailing_moe(resolution: Resolution) -> None:
    """State the rotated elements as a part of the head, as Swift reads them."""
    rotary, head = resolution.values["rotary_dim"], resolution.fallback("head_dim")
    if rotary is not None:
        resolution.place["partial_rotary_factor"] = rotary / head


def gemma4(resolution: Resolution) -> None:
    """State both rotary embeddings in full.

    Swift rotates sliding layers fully and others proportionally, without further scaling.
    """
    given = resolution.values["rope_parameters"]
    stated = {}
    for layers, kind in (("sliding_attention", "default"), ("full_attention", "proportional")):
        own = {k: v for k, v in (given.get(layers) or {}).items() if v is not None}
        actual = own.get("type") or own.get("rope_type", "default")
        part = own.get("partial_rotary_factor", 1.0) if actual == "proportional" else 1.0
        if actual not in ("default", kind) or own.get("factor", 1) != 1:
            resolution.problems.add(
                f"rope_parameters.{layers} asks for rotary embeddings of the kind "
                f"{shown(actual)}, but {resolution.file} computes only {kind}",
                ANOTHER_MODEL,
            )
        stated[layers] = {
            "rope_type": actual,
            "rope_theta": own.get("rope_theta", 10_000.0),
            "partial_rotary_factor": part,
        }
    resolution.place["rope_parameters"] = stated


def nemotron_h(resolution: Resolution) -> None:
    """State the bounds of time steps under the keys that Swift reads."""
    limits = resolution.values["time_step_limit"]
    if len(limits) != len(("min", "max")) or any(map(math.isnan, limits)):
        resolution.problems.add(
            f"time_step_limit is {shown(limits)}, but should be two numbers", CHANGE
        )
        return
    for name, limit in zip(("time_step_limit_min", "time_step_limit_max"), limits, strict=True):
        resolution.place[name] = bounded(limit, may_bound=True)


def open_elm(resolution: Resolution) -> None:
    """Refuse heads and widths other than those that Swift computes by itself."""
    values = resolution.values
    layers, groups = values["num_transformer_layers"], 4
    unit = values["head_dim"] * groups

    def spread(first: float, last: float) -> list[float]:
        step = (last - first) / max(layers - 1, 1)
        return [round(first + step * index, 2) for index in range(layers)]

    heads = [
        rounded_width(values["model_dim"] * part, unit) // values["head_dim"]
        for part in spread(0.5, 1.0)
    ]
    for name, computed in (
        ("num_query_heads", heads),
        ("num_kv_heads", [count // groups for count in heads]),
        ("ffn_multipliers", spread(0.5, 4.0)),
    ):
        if list(values[name]) != computed:
            resolution.problems.add(
                f"{resolution.file} computes {name} by itself, and differs from config.json",
                ANOTHER_MODEL,
            )


def rounded_width(width: float, unit: int) -> int:
    """Return the multiple of a unit for a width; at most a tenth smaller."""
    multiple = max(unit, int((width + unit / 2) / unit) * unit)
    return multiple + unit if multiple < 0.9 * width else multiple


def phi_moe(resolution: Resolution) -> None:
    """State equal lengths where mlx_lm does not scale, so that Swift's scale is 1."""
    if resolution.values["rope_scaling"] is None:
        length = resolution.values["max_position_embeddings"]
        resolution.place["original_max_position_embeddings"] = length


FAMILIES: dict[str, Callable[[Resolution], None]] = {
    "BailingMoeConfiguration": bailing_moe,
    "Gemma4TextConfiguration": gemma4,
    "NemotronHConfiguration": nemotron_h,
    "OpenElmConfiguration": open_elm,
    "PhiMoEConfiguration": phi_moe,
}
"""By decoder: the step for what no rule can say."""
