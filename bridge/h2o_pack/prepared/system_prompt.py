"""Reads the system prompt with the model that was bundled, and puts its caches beside it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from h2o_pack.bundling import manifest
from h2o_pack.bundling.manifest import BundledFile, Manifest
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.files.digests import sha256_of
from h2o_pack.files.layout import ADAPTER, ADAPTER_CONFIG, SYSTEM_PROMPT
from h2o_pack.files.lock import PreparedPrompt
from h2o_pack.models.adapter import CONFIG, WEIGHTS
from h2o_pack.plan.package_plan import Plan
from h2o_pack.prepared.checks import needed_bytes, pinning
from h2o_pack.prepared.opening import opening_tokens
from h2o_pack.progress import ProgressReporter
from h2o_pack.sizes import gigabytes

WRITTEN = "system-prompt.safetensors"  # MLX writes no other ending


def prepare(
    plan: Plan, package: Path, bundled: Manifest, previous: Path, say: ProgressReporter
) -> Manifest:
    """Put the caches of the plan's system prompt into a package, and name them in its manifest.

    Those of an earlier package stay if nothing that decides them has changed.

    Args:
        plan: has a system prompt.
        package: the folder of the plan's model is filled.
        bundled: what it holds.
        previous: an earlier package, which need not exist.
        say: told what is done.

    Returns:
        The manifest with the prompt and its file.

    Raises:
        UserError: the model cannot be loaded, its template has no place for a system prompt,
            or the prompt is longer than what the caches can pin.

    """
    wanted = PreparedPrompt(
        tokens=0,
        chunk=plan.memory.prefill_step,
        prompt=digest(plan.system),
        template=digest(plan.chat_template.source) if plan.chat_template else "",
        model=bundled.digest,
        policy=policy_digest(plan),
        made_by=makers(),
    )
    target = package / plan.folder / SYSTEM_PROMPT
    kept = keep(wanted, previous, plan.folder, target)
    if kept is not None:
        say("the caches of the system prompt are as they should be")
        record = kept
    else:
        record = replace(wanted, tokens=compute(plan, target, wanted, say))
    file = BundledFile(SYSTEM_PROMPT, target.stat().st_size, sha256_of(target))
    whole = replace(bundled, files=(*bundled.files, file), system_prompt=record)
    manifest.write(package, whole, plan.folder)
    return whole


def keep(
    wanted: PreparedPrompt, previous: Path, folder: str, target: Path
) -> PreparedPrompt | None:
    """Take over the file of an earlier package, if it is what is wanted; return its record.

    folder: of the model, in that package.
    """
    try:
        earlier = manifest.read(previous, folder)
    except UserError:
        return None
    record = earlier.system_prompt
    if record is None or replace(record, tokens=0) != wanted:
        return None
    source = previous / folder / SYSTEM_PROMPT
    listed = next((file for file in earlier.files if file.path == SYSTEM_PROMPT), None)
    try:
        if listed is None or sha256_of(source) != listed.sha256:
            return None
        shutil.copyfile(source, target)
    except OSError:
        return None
    return record


def compute(plan: Plan, target: Path, record: PreparedPrompt, say: ProgressReporter) -> int:
    """Read the prompt and write its caches; return the number of its tokens."""
    from mlx_lm.models.cache import save_prompt_cache

    takes = gigabytes(needed_bytes(plan.memory))
    say(f"loading the model for the system prompt, about {takes} GB of memory")
    model, tokenizer = load_bundled(target.parent)
    tokens = opening_tokens(tokenizer, plan.system, templated=plan.chat_template is not None)
    caches = make_caches(model, plan, len(tokens))
    check_kinds(caches, plan.model.config.model_type)
    begun = time.monotonic()
    read(model, caches, tokens, record.chunk, say)
    say(f"read {len(tokens)} tokens in {time.monotonic() - begun:.1f} s", done=True)
    said = {
        "tokens": json.dumps(tokens),
        "chunk": str(record.chunk),
        "prompt": record.prompt,
        "template": record.template,
        "model": record.model,
        "policy": record.policy,
    }
    written = target.with_name(WRITTEN)
    save_prompt_cache(str(written), caches, said)
    written.rename(target)
    with target.open("rb") as file:
        os.fsync(file.fileno())
    return len(tokens)


def load_bundled(folder: Path) -> tuple[Any, Any]:
    """Load the model in a package's Model/, with its adapter if it has one."""
    from h2o_pack.measure.models import load

    if not (folder / ADAPTER).exists():
        return load(str(folder))
    with tempfile.TemporaryDirectory() as named:  # as mlx-lm wants its files to be named
        (Path(named) / CONFIG).symlink_to((folder / ADAPTER_CONFIG).resolve())
        (Path(named) / WEIGHTS).symlink_to((folder / ADAPTER).resolve())
        return load(str(folder), named)


def make_caches(model: Any, plan: Plan, tokens: int) -> list[Any]:
    """Make the caches that a session makes, of which the prompt is pinned."""
    from h2o_py.models import make_h2o_cache

    with pinning(tokens):
        config = replace(plan.cache, pinned=(*plan.cache.pinned, (0, tokens)))
        return make_h2o_cache(
            model, config, kv=plan.storage, group_size=plan.group_size, budgets=plan.budgets
        )


def check_kinds(caches: list[Any], family: str) -> None:
    """Refuse caches of a kind that the Swift package does not read from a file."""
    from mlx_lm.models.cache import ArraysCache, CacheList, KVCache, RotatingKVCache

    from h2o_py.cache import H2OKVCache

    known = (H2OKVCache, KVCache, RotatingKVCache, ArraysCache)
    members = [
        m for each in caches for m in (each.caches if isinstance(each, CacheList) else [each])
    ]
    other = sorted({type(each).__name__ for each in members if not isinstance(each, known)})
    if other:
        raise UserError(
            f"models of the type {family} keep {' and '.join(other)}, which H2OKit does not "
            "read from a file",
            remedy="Leave --system out: the app reads its system prompt in the first turn.",
            code=ExitCode.MODEL,
        )


def read(
    model: Any, caches: list[Any], tokens: list[int], chunk: int, say: ProgressReporter
) -> None:
    """Give a model tokens in chunks, as a session of the Swift package does."""
    import mlx.core as mx

    from h2o_py.routing import routed

    with say.bar("reading the system prompt", len(tokens), "items") as advance, routed():
        for begin in range(0, len(tokens), chunk):
            part = tokens[begin : begin + chunk]
            model(mx.array([part]), cache=caches)
            mx.eval([cache.state for cache in caches])
            advance(len(part))


def policy_digest(plan: Plan) -> str:
    """Return the sha256 of what decides which rows the caches keep, and how."""
    budgets = None if plan.budgets is None else plan.budgets.to_dict()
    settings = [plan.cache.to_dict(), plan.storage, plan.group_size, budgets]
    return digest(json.dumps(settings, sort_keys=True))


def digest(text: str) -> str:
    """Return the sha256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def makers() -> str:
    """Return what computes the caches, by its versions."""
    from importlib.metadata import version

    from h2o_pack import __version__

    return f"h2o-pack {__version__}, mlx {version('mlx')}, mlx-lm {version('mlx-lm')}"
