"""Errors and warnings of h2o_py as values; the front end turns them into text.

An error has a code, values, and the place in a file that it is about. Its text is the
template that `WORDING` has for the code, filled in with the values: `{max_size}` is a value,
and `{name.max_size}` is the name of that setting. A command line passes a naming function
that returns flags; without one, settings have their names in Python and JSON.
"""

from __future__ import annotations

import difflib
import os
import string
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from h2o_py.policy_fields import CONFIG_WORDING, Wording

Naming = Callable[[str], str]


WORDING: dict[str, Wording] = {
    **CONFIG_WORDING,
    "not_json": Wording(
        "it is not JSON: {reason}", "Give the file that `h2o-pack budgets` wrote"
    ),
    "not_budgets": Wording('it must be {{"format": {format}, "layers": [...]}}'),
    "other_format": Wording("format = {found!r}; this release reads {format}"),
    "not_a_list": Wording("layers must be a list, with one entry per cache"),
    "not_a_budget": Wording(
        "it must be null or have heavy_budget and recent_budget, and max_size if the "
        "layer has its own number of rows"
    ),
    "not_recall_layers": Wording("it must be a list of increasing indices of layers"),
    "recall_without_eviction": Wording(
        "layer {layer} of {family} has no full attention and evicts nothing",
        "Leave it out",
    ),
    "wrong_layer_count": Wording(
        "layers has {layers} entries; {family} has {caches} caches",
        "Write one entry per cache, null for the common budgets",
    ),
    "layer_keeps_own_cache": Wording(
        "{family} has no full attention there, so the layer keeps its own cache", "Write null"
    ),
    "one_mask": Wording(
        "layers have different numbers of rows, but {family} makes one mask for all layers",
        "Give budgets without max_size",
    ),
    "unfit_model": Wording(
        "{family} cannot use an H2O cache: {reason}",
        "Generate without H2O, or choose another model",
    ),
    "model_not_found": Wording(
        "{model} is not a folder, and cannot be downloaded from the hub: {reason}",
        "Give the folder of a model, or its id as shown on huggingface.co",
    ),
    "model_code": Wording(
        "it names a model_file, Python code that comes with the model",
        "No code of models is run: choose another one",
    ),
    "no_plain_cache": Wording(
        "{family} has no layer with a plain KVCache (it uses {kinds}), so H2O has nothing to "
        "bound",
        "Generate without H2O",
    ),
    "excluded_option": Wording("{option} and h2o_config exclude each other: {reason}"),
    "no_scores": Wording(
        "the attention of {family} does not pass through the H2O cache (it {reason}), so no "
        "scores arrive: novelty and recency alone decide which rows stay"
    ),
    "not_routed": Wording(
        "this model's attention does not pass through the H2O cache, so no scores arrive: "
        "novelty and recency alone decide which rows stay",
        "Call h2o_py.install_routing() before generating",
    ),
    "archive_group": Wording(
        "recall.archive_bits = {bits} does not suit head dims of {dims}: groups of 32 elements "
        "share a scale",
        "Set recall.archive_bits to 16",
    ),
    "recall_needs_scores": Wording(
        "{family} cannot recall: its attention does not pass through the H2O cache (it "
        "{reason}), so nothing says which rows to bring back",
        "Leave recall out",
    ),
    "recall_layers": Wording(
        "recall.layers names {layer}, but H2O caches are those of layers {known} of {family}",
        "Name some of these, or leave layers out",
    ),
    "recall_not_asked": Wording(
        "this model's attention does not pass through the H2O cache, so nothing says which "
        "rows to bring back: recall is off",
        "Call h2o_py.install_routing() before generating",
    ),
    "recall_limit": Wording(
        "an archive reached recall.limit = {limit} bytes: its oldest tokens are forgotten",
        "Raise recall.limit, or set it to 0",
    ),
    "archive_locked": Wording(
        "the archive {path} is open in another cache, in this process or another",
        "Close it, or give each conversation a folder of its own",
    ),
    "archive_not_empty": Wording(
        "{path} holds the archive of another conversation",
        "Load the cache that was saved with it, give another folder, or remove it with "
        "h2o_py.delete_archive",
    ),
    "archive_not_given": Wording(
        "the saved cache has an archive in files, but its folder was not given",
        "Load it with h2o_py.load_cache, and give the store that its H2ORecall had",
    ),
    "archive_other": Wording(
        "the archive {path} does not belong to the saved cache",
        "Load the cache that was saved last, or make it again from its prompt",
    ),
    "archive_too_short": Wording(
        "the archive {path} ends before the saved cache does",
        "Give the folder that the cache was saved with, or make it again from its prompt",
    ),
    "archive_damaged": Wording(
        "{path} is missing or was changed after it was written ({reason})",
        "Remove the archive with h2o_py.delete_archive and make the cache again from its "
        "prompt",
    ),
    "archive_unusable": Wording(
        "{path} cannot hold an archive: {reason}",
        "Set recall.store to a writable folder whose parent exists",
    ),
    "archive_not_written": Wording(
        "{path} cannot be written ({reason}): recall is off, and the conversation continues "
        "without it"
    ),
    "archive_not_read": Wording(
        "{path} cannot be read ({reason}): recall is off, and the conversation continues "
        "without it"
    ),
    "archive_too_slow": Wording(
        "the disk of {path} is too slow for the tokens that arrive: recall is off, and the "
        "conversation continues without it",
        "Keep the archive in memory",
    ),
    "archive_forked": Wording(
        "{path} belongs to the parent of this forked process: recall is off here"
    ),
    "not_an_h2o_cache": Wording("cache {index} is {found}; save_cache takes filled H2O caches"),
    "not_a_cache_file": Wording("it is not a cache of h2o-pack (its kind is {kind!r})"),
    "other_cache_version": Wording("its version is {found!r}; this release reads {version!r}"),
    "unknown_cache_class": Wording("it has a {found!r} cache; this release reads {known}"),
    "attend_before_write": Wording(
        "attend was called without a write", "Call update_and_fetch first, once per attend"
    ),
    "sliding_window": Wording(
        "window_size = {window_size}: an H2O cache cannot serve a layer with a sliding window",
        "Keep the model's own cache in that layer",
    ),
    "quantized_later": Wording(
        "kv_bits = {bits} (kv_group_size = {group_size}) does not apply to an H2O cache, which "
        "quantizes when it writes",
        "Drop kv_bits and make the caches with make_h2o_cache(model, config, "
        'kv="8") (or "k8v4", "4")',
    ),
    "other_state": Wording(
        "the state has {found} arrays; {kind} has {names}",
        "Load it with the class of cache that saved it",
    ),
    "other_state_format": Wording(
        "the cache's format is {found!r}; this version reads {format!r}",
        "Make the cache again from its prompt",
    ),
    "damaged_header": Wording(
        "the saved cache's {part} is {found!r}; it must be {allowed}",
        "It was damaged or changed. Make the cache again from its prompt",
    ),
    "damaged_shape": Wording(
        "the saved cache's {part} has shape {shape} and dtype {dtype}; the rest of it needs "
        "{allowed}",
        "It was damaged or changed. Make the cache again from its prompt",
    ),
    "damaged_positions": Wording(
        "the saved cache's {part} do not list each token that it has seen exactly once",
        "It was damaged or changed. Make the cache again from its prompt",
    ),
    "damaged_victim": Wording(
        "the saved cache's {part}, the next row to evict, is outside of its rows",
        "It was damaged or changed. Make the cache again from its prompt",
    ),
    "damaged_numbers": Wording(
        "the saved cache's {part} contains a number that no cache writes",
        "It was damaged or changed. Make the cache again from its prompt",
    ),
    "unreadable_cache_file": Wording(
        "it cannot be read: {reason}", "Make the caches again from their prompt"
    ),
    "damaged_cache_file": Wording(
        "its {part} is not what save_cache writes", "Make the caches again from their prompt"
    ),
    "speculation": Wording(
        "speculative decoding (draft_model) takes rejected tokens back, which these caches "
        "cannot do: an H2O cache that has evicted rows, a full sliding window and a recurrent "
        "state cannot be rewound",
        "Generate without draft_model, or give H2O a max_size with room for the prompt, the "
        "answer and the draft",
    ),
    "mixed_dense_and_quantized": Wording(
        "key_bits = {key_bits} and value_bits = {value_bits}: either both are 16 or neither is"
    ),
    "ring_with_unequal_bits": Wording(
        "key_bits = {key_bits} and value_bits = {value_bits} must be equal with recent_bits"
    ),
}
"""The texts of all errors and warnings, by code."""


def plain(field: str) -> str:
    """The name of a setting in Python and in JSON."""
    return field


class _Message(Exception):  # noqa: N818  errors and warnings share it
    """A code of `WORDING` with its values, and the place in a file that it is about."""

    def __init__(self, code: str, *, where: str = "", **values: Any) -> None:
        super().__init__(code, values)
        self.code = code
        self.where = where
        self.values: Mapping[str, Any] = values

    @property
    def field(self) -> str:
        """The name of the setting to change; "" if there is none."""
        return str(self.values.get("field", WORDING[self.code].field))

    def what(self, name: Naming = plain) -> str:
        """What is wrong, without a full stop."""
        return _filled(WORDING[self.code].what, self.values, name)

    def remedy(self, name: Naming = plain) -> str:
        """What to do, a sentence; "" if there is nothing to suggest."""
        template = WORDING[self.code].remedy
        keys = {key for _, key, _, _ in string.Formatter().parse(template) if key}
        if not template or not all(self.values.get(key, True) for key in keys):
            return ""
        text = _filled(template, self.values, name)
        return text if text.endswith(("?", ".")) else f"{text}."

    def text(self, name: Naming = plain) -> str:
        """The whole message: the place, what is wrong, and the remedy."""
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.what(name)}. {self.remedy(name)}".rstrip()

    def __str__(self) -> str:
        return self.text()

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (type(self), self.code, self.where, dict(self.values))


class H2OError(_Message, ValueError):
    """An input, a model or a state that h2o_py refuses."""

    def at(self, where: str) -> H2OError:
        """Return the same error with the place in a file that it is about."""
        return type(self)(self.code, where=where, **self.values)


class H2OConfigError(H2OError):
    """A policy or storage that cannot be used; `field` names the setting."""

    @classmethod
    def unknown_choice(
        cls, field: str, value: object, known: Iterable[object]
    ) -> H2OConfigError:
        """The error for a value that is not among the known ones."""
        names = [str(name) for name in known]
        near = nearest(value, names) if isinstance(value, str) else ""
        return cls(
            "unknown_choice", field=field, value=value, known=", ".join(names), near=near
        )


class H2OBudgetsError(H2OError):
    """A budgets document that is invalid or was made for another model."""


class H2OModelError(H2OError):
    """A model that cannot use H2O caches."""


class H2OStateError(H2OError):
    """A cache that is used in a way its state does not allow."""


class H2OFileError(H2OError):
    """Caches that cannot be saved, or a file that cannot be loaded as caches."""


class H2OConfigWarning(_Message, UserWarning):
    """A setting that works but is known to give poor text."""


class H2OScoresMissingWarning(_Message, UserWarning):
    """Attention did not pass through the cache, so no scores arrive."""


class H2ORecallWarning(_Message, UserWarning):
    """Recall is off, or it reaches less far back than the conversation."""


_reported: set[str] = set()


def say_once(code: str, path: str = "", error: int = 0, limit: int = 0) -> None:
    """Warn that a cache goes on without scores or recall, once in a process for each code.

    Args:
        code: one of `WORDING`.
        path: of an archive in files.
        error: errno, or 0 if the system reported none.
        limit: `recall.limit`.

    """
    if code in _reported:
        return
    _reported.add(code)
    kind = H2OScoresMissingWarning if code == "not_routed" else H2ORecallWarning
    values = {**of_archive(path, error), "limit": limit}
    warnings.warn(kind(code, **values), stacklevel=4)


def of_archive(path: str, error: int) -> dict[str, Any]:
    """Values of a message about an archive in files; `error` is errno, 0 if there is none."""
    reason = os.strerror(error) if error else "its content is not what was written"
    return {"path": path, "reason": reason}


def nearest(name: object, known: Iterable[str]) -> str:
    """Return the known name that is most like `name`, or "" if none is; case is ignored.

    A name that begins with `name` is preferred, the shortest of them first.
    """
    text = str(name).lower()
    folded = {candidate.lower(): candidate for candidate in known}
    longer = sorted((key for key in folded if text and key.startswith(text)), key=len)
    close = longer or difflib.get_close_matches(text, folded, n=1, cutoff=0.6)
    return folded[close[0]] if close else ""


class _Names:
    def __init__(self, name: Naming, values: Mapping[str, Any]) -> None:
        self._name = name
        self._field = values.get("field", "field")

    def __getattr__(self, field: str) -> str:
        return self._name(str(self._field) if field == "field" else field)


def _filled(template: str, values: Mapping[str, Any], name: Naming) -> str:
    return template.format(**values, name=_Names(name, values))


def _remade(kind: type[_Message], code: str, where: str, values: dict[str, Any]) -> _Message:
    return kind(code, where=where, **values)
