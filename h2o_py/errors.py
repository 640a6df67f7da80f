"""Errors and warnings of h2o_py as values; the front end turns them into text.

An error has a code, values, and if it concerns a file, the place in that file. `WORDING` has a
template for each code, into which the values are filled: `{max_size}` is a value, and
`{name.max_size}` is the name of that setting. A command line passes a naming function that
returns flags; without one, settings have their names in Python and JSON.
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
        "the file is not JSON: {reason}",
        "Give the file that `h2o-pack profile --budgets` wrote",
    ),
    "not_budgets": Wording('the file must contain {{"format": {format}, "layers": [...]}}'),
    "other_format": Wording("format is {found!r}, but this release reads format {format}"),
    "not_a_list": Wording("layers must be a list with one entry per cache"),
    "not_a_budget": Wording(
        "an entry must be null or have heavy_budget and recent_budget, and max_size if the "
        "layer has its own number of rows"
    ),
    "not_recall_layers": Wording("the value must be a list of increasing indices of layers"),
    "recall_without_eviction": Wording(
        "layer {layer} of {family} has no full attention and evicts nothing",
        "Leave the layer out",
    ),
    "wrong_layer_count": Wording(
        "layers has {layers} entries, but {family} has {caches} caches",
        "Write one entry per cache, null for the common budgets",
    ),
    "layer_keeps_own_cache": Wording(
        "this layer of {family} has no full attention, so it keeps its own cache", "Write null"
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
        "it names a model_file, which is Python code of the model",
        "h2o_py runs no code of models: choose another model",
    ),
    "unreadable_config": Wording("it cannot be read: {reason}", "Download the model again"),
    "unreadable_tokenizer": Wording(
        "the tokenizers library fails for it", "Download the model again, or choose another one"
    ),
    "model_not_regular": Wording(
        "it is not a regular file", "Give a folder with the files of a model"
    ),
    "no_plain_cache": Wording(
        "{family} has no layer with a plain KVCache (it uses {kinds}), so there is no "
        "cache to replace by an H2O cache",
        "Generate without H2O",
    ),
    "excluded_option": Wording("{option} cannot be used with h2o_config: {reason}"),
    "no_scores": Wording(
        "the attention of {family} does not pass through the H2O cache (it {reason}), so the "
        "cache gets no scores: novelty and recency alone decide which rows stay"
    ),
    "not_routed": Wording(
        "this model's attention does not pass through the H2O cache, so the cache gets no "
        "scores: novelty and recency alone decide which rows stay",
        "Call h2o_py.install_routing() before generating",
    ),
    "archive_group": Wording(
        "recall.archive_bits = {bits} needs head dims that 32 divides, but they are {dims}",
        "Set recall.archive_bits to 16",
    ),
    "recall_needs_scores": Wording(
        "{family} cannot recall: its attention does not pass through the H2O cache (it "
        "{reason}), so the cache cannot choose the rows to bring back",
        "Leave recall out",
    ),
    "recall_layers": Wording(
        "recall.layers names {layer}, but {family} has H2O caches only in the layers {known}",
        "Name some of these layers, or leave layers out",
    ),
    "recall_not_asked": Wording(
        "this model's attention does not pass through the H2O cache, so the cache cannot "
        "choose the rows to bring back: recall is off",
        "Call h2o_py.install_routing() before generating",
    ),
    "recall_limit": Wording(
        "an archive reached recall.limit = {limit} bytes and drops its oldest tokens",
        "Raise recall.limit, or set it to 0",
    ),
    "archive_locked": Wording(
        "another cache has opened the archive {path}, in this process or in another",
        "Close that cache, or give each conversation its own folder",
    ),
    "archive_not_empty": Wording(
        "{path} contains the archive of another conversation",
        "Load the cache that was saved with the archive, give another folder, or delete the "
        "archive with h2o_py.delete_archive",
    ),
    "archive_not_given": Wording(
        "the saved cache has an archive in files, but its folder was not given",
        "Load the cache with h2o_py.load_cache, and give it the store of its H2ORecall",
    ),
    "archive_other": Wording(
        "the archive {path} does not belong to the saved cache",
        "Load the cache that was saved last, or make the cache again from its prompt",
    ),
    "archive_too_short": Wording(
        "the archive {path} has fewer tokens than the saved cache",
        "Give the folder that the cache had when it was saved, or make the cache again from "
        "its prompt",
    ),
    "archive_damaged": Wording(
        "{path} is missing or was changed after it was written ({reason})",
        "Delete the archive with h2o_py.delete_archive, and make the cache again from its "
        "prompt",
    ),
    "archive_unusable": Wording(
        "{path} cannot be the folder of an archive: {reason}",
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
        "the disk of {path} is slower than new tokens arrive: recall is off, and the "
        "conversation continues without it",
        "Keep the archive in memory",
    ),
    "archive_forked": Wording(
        "{path} belongs to the parent of this forked process, so recall is off here"
    ),
    "archive_ended": Wording(
        "this archive is gone, because its cache's recall has ended",
        "Read the archive of the cache again: it is None without recall",
    ),
    "not_an_h2o_cache": Wording(
        "cache {index} is {found}, but save_cache takes only filled H2O caches"
    ),
    "not_a_cache_file": Wording("the file is not a cache of h2o-pack (its kind is {kind!r})"),
    "other_cache_version": Wording(
        "the file's version is {found!r}, but this release reads {version!r}"
    ),
    "unknown_cache_class": Wording(
        "the file has a {found!r} cache, but this release reads only {known}"
    ),
    "attend_before_write": Wording(
        "attend was called without a write",
        "Call update_and_fetch once before each call of attend",
    ),
    "sliding_window": Wording(
        "an H2O cache cannot be used in a layer with a sliding window (window_size = "
        "{window_size})",
        "Keep the model's own cache in this layer",
    ),
    "quantized_later": Wording(
        "kv_bits = {bits} (kv_group_size = {group_size}) has no effect on an H2O cache, which "
        "quantizes rows when it writes them",
        "Leave kv_bits out, and make the caches with make_h2o_cache(model, config, "
        'kv="8") (or "k8v4", "4")',
    ),
    "other_state": Wording(
        "the state has {found} arrays, but {kind} needs {names}",
        "Load the state with the class of cache that saved it",
    ),
    "other_state_format": Wording(
        "the cache's format is {found!r}, but this version reads {format!r}",
        "Make the cache again from its prompt",
    ),
    "damaged_header": Wording(
        "the saved cache's {part} is {found!r}, but must be {allowed}",
        "The saved cache was damaged or changed. Make the cache again from its prompt",
    ),
    "damaged_shape": Wording(
        "the saved cache's {part} has shape {shape} and dtype {dtype}, but its other arrays "
        "need {allowed}",
        "The saved cache was damaged or changed. Make the cache again from its prompt",
    ),
    "damaged_positions": Wording(
        "the saved cache's {part} do not list each of its tokens exactly once",
        "The saved cache was damaged or changed. Make the cache again from its prompt",
    ),
    "damaged_victim": Wording(
        "the saved cache's {part}, the next row to evict, is not one of its rows",
        "The saved cache was damaged or changed. Make the cache again from its prompt",
    ),
    "damaged_numbers": Wording(
        "the saved cache's {part} contains a number that no cache writes",
        "The saved cache was damaged or changed. Make the cache again from its prompt",
    ),
    "unreadable_cache_file": Wording(
        "the file cannot be read: {reason}", "Make the caches again from their prompt"
    ),
    "damaged_cache_file": Wording(
        "the file's {part} is not as save_cache writes it",
        "Make the caches again from their prompt",
    ),
    "speculation": Wording(
        "these caches do not support speculative decoding (draft_model), because rejected "
        "tokens must be removed again: an H2O cache that has evicted rows, a full sliding "
        "window and a recurrent state cannot be rewound",
        "Generate without draft_model, or give H2O a max_size with room for the prompt, the "
        "answer and the draft",
    ),
    "mixed_dense_and_quantized": Wording(
        "key_bits = {key_bits} and value_bits = {value_bits}, but if one is 16, both must be"
    ),
    "ring_with_unequal_bits": Wording(
        "with recent_bits, key_bits = {key_bits} and value_bits = {value_bits} must be equal"
    ),
}
"""The texts of all errors and warnings, by code."""


def plain(field: str) -> str:
    """The name of a setting in Python and in JSON."""
    return field


class _Message(Exception):  # noqa: N818  the base of errors and warnings
    """A code of `WORDING` with its values, and the place in a file, if there is one."""

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
        """Return the same error with a place in a file."""
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
    """Attention did not pass through the cache, so the cache gets no scores."""


class H2ORecallWarning(_Message, UserWarning):
    """Recall is off, or its archive no longer contains the oldest tokens."""


_reported: set[str] = set()


def say_once(code: str, path: str = "", error: int = 0, limit: int = 0) -> None:
    """Warn, once in a process for each code, that a cache works without scores or recall.

    Args:
        code: one of `WORDING`.
        path: the folder or file of an archive.
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
    """Return the values of a message about an archive in files.

    error: errno, or 0 if the system reported none.
    """
    reason = os.strerror(error) if error else "its content has changed"
    return {"path": path, "reason": reason}


def nearest(name: object, known: Iterable[str]) -> str:
    """Return the known name that is most like `name`, or "" if none is; case is ignored.

    Prefers names that begin with `name`, and among them the shortest.
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
