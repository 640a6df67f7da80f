"""The traces that a package's app replays on a device, one for each model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from h2o_pack import __version__
from h2o_pack.files import lock
from h2o_pack.files.digests import sha256_of
from h2o_pack.files.layout import TRACES_FOLDER
from h2o_pack.plan.package_plan import Plan

MADE_FOR = "made_for"


def traces(plan: Plan, earlier: Mapping[str, str]) -> dict[str, str]:
    """Return {path: text} of the traces.

    One of the earlier package that was made for the same is taken over: another processor
    rounds otherwise, and would make another text of the same worth.
    """
    made = {}
    for each in plan.each_model:
        name = each.folder.rpartition("/")[2]
        path = f"Sources/{plan.module_name}Model/{TRACES_FOLDER}/{name}.json"
        kept = earlier.get(path, "")
        same = kept and json.loads(kept).get(MADE_FOR) == made_for(each)
        made[path] = kept if same else trace(each)
    return made


def trace(plan: Plan) -> str:
    """Return the trace of one model's settings."""
    from h2o_pack.parity.short_trace import Settings, short_trace  # needs MLX

    settings = Settings(plan.cache, plan.storage, plan.group_size, dims(plan))
    document = {MADE_FOR: made_for(plan), **short_trace(settings)}
    return json.dumps(document, indent=1) + "\n"


def made_for(plan: Plan) -> dict[str, Any]:
    """Return all that a trace follows from, as JSON has it."""
    settings = {
        "h2o_pack": __version__,
        "config": plan.cache.to_dict(),
        "kv": plan.storage,
        "group_size": plan.group_size,
        "dims": dims(plan),
    }
    found: dict[str, Any] = json.loads(json.dumps(settings))
    return found


def dims(plan: Plan) -> tuple[int, int]:
    """Return the elements of a key and of a value in the first layer that evicts."""
    layer = next(each for each in plan.model.config.layers if each.kind == "full")
    return layer.key_dim, layer.value_dim


def existing_traces(package: Path) -> dict[str, str]:
    """Return {path: text} of the traces in a package that are as its lock says."""
    if not (package / lock.NAME).is_file():
        return {}
    return {
        path: (package / path).read_text("utf-8")
        for path, digest in lock.read(package).files.items()
        if Path(path).parent.name == TRACES_FOLDER
        and (package / path).is_file()
        and sha256_of(package / path) == digest
    }
