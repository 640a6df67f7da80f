"""Checks, computes and bundles the caches of a system prompt."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from h2o_pack.bundling import manifest
from h2o_pack.bundling.manifest import BundledFile, Manifest, PreparedPrompt
from h2o_pack.config_errors import user_errors
from h2o_pack.errors import UserError, memory_error, model_error, usage_error
from h2o_pack.files.digests import sha256_of
from h2o_pack.files.lock import sha256
from h2o_pack.files.paths import ADAPTER, ADAPTER_CONFIG, SYSTEM_PROMPT
from h2o_pack.files.text import read_text
from h2o_pack.memory.terms import MemoryPlan
from h2o_pack.models.adapter import CONFIG, WEIGHTS
from h2o_pack.models.files import TOKENIZER
from h2o_pack.models.texts import common
from h2o_pack.plan.package_plan import ModelPlan
from h2o_pack.progress import ProgressReporter
from h2o_pack.sizes import gigabytes
from h2o_py.config import without_warnings


def opening(plan: ModelPlan, encode: Callable[..., list[int]]) -> list[int]:
    """Return the token ids with which every first turn begins, whatever the user's message is.

    encode: gets a text and `add_special_tokens`, and returns ids. The session of the Swift
    package pins the same tokens.
    """
    marks = plan.source.texts.template is None  # a template writes the tokens that begin a text
    return common([encode(text, add_special_tokens=marks) for text in plan.source.turns])


CONTAINER = Path("/sys/fs/cgroup/memory.max")
"""The memory limit of a container, in bytes."""
GIVE = "Give a UTF-8 text file as --system."


def read_system(file: Path | None) -> str:
    """Read the system prompt without the blank lines around it; UserError if it has no text."""
    if file is None:
        return ""
    text = read_text(file, GIVE).strip()
    if not text:
        raise usage_error(f"{file} is empty", GIVE)
    return text


def check_system(plan: ModelPlan) -> None:
    """Check that a model's caches can pin the system prompt, and be computed on this machine.

    If the model's files are on the hub and could not be read, no tokens are counted. Raises
    UserError: the caches cannot pin the prompt, or this machine has too little memory.
    """
    check_memory(plan.memory)
    resolved = plan.source.resolved
    if resolved is None:
        return
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(resolved.written[TOKENIZER].content.decode())
    tokens = len(opening(plan, lambda text, **options: tokenizer.encode(text, **options).ids))
    with pinning(tokens):
        for cache in dict.fromkeys((plan.cache, *filter(None, plan.workload.caches))):
            replace(cache, pinned=(*cache.pinned, (0, tokens)))


@contextmanager
def pinning(tokens: int) -> Iterator[None]:
    """Add a remedy to the error of caches that refuse to pin a system prompt."""
    try:
        with without_warnings(), user_errors():
            yield
    except UserError as error:
        raise usage_error(
            f"the system prompt has {tokens} tokens, which do not fit: {error.what}",
            "Shorten the prompt, raise --max-kv, or lower --recent-budget.",
        ) from error


def needed_bytes(memory: MemoryPlan) -> int:
    """Return the bytes of weights, of caches and for computing a chunk of a prompt."""
    return memory.weights + memory.caches + memory.archive + memory.prefill


def check_memory(memory: MemoryPlan) -> None:
    """Raise UserError if this machine has too little memory to read a prompt with the model."""
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # not in a container, or its limit is "max"
        available = min(available, int(CONTAINER.read_text("ascii")))
    size = needed_bytes(memory)
    if size > available:
        raise memory_error(
            f"reading the system prompt needs {gigabytes(size)} GB of memory, but this "
            f"machine has {gigabytes(available)} GB",
            "Package the model on a machine with more memory, or leave out --system: "
            "the app then reads its system prompt in the first turn.",
        )


WRITTEN = "system-prompt.safetensors"  # MLX writes only files with this extension


def add_system_prompt(
    plan: ModelPlan,
    system: str,
    package: Path,
    bundled: Manifest,
    previous: Path,
    say: ProgressReporter,
) -> Manifest:
    """Put a model's caches of the system prompt into a package; return the new manifest.

    The caches of an earlier package are reused if everything that they depend on is unchanged.
    Raises UserError: the model cannot be loaded, its template has no place for a system prompt,
    or the prompt has more tokens than the caches can pin.
    """
    template = plan.source.texts.template
    prompt = PreparedPrompt(
        tokens=0,
        chunk=plan.memory.prefill_step,
        prompt=sha256(system.encode()),
        template=sha256(template.source.encode()) if template else "",
        model=bundled.digest,
        policy=policy_digest(plan),
        made_by=makers(),
    )
    target = package / plan.folder / SYSTEM_PROMPT
    record = keep(prompt, previous, plan.folder, target)
    if record is None:
        record = replace(prompt, tokens=compute(plan, target, prompt, say))
    else:
        say("the caches of the system prompt are up to date")
    file = BundledFile(SYSTEM_PROMPT, target.stat().st_size, sha256_of(target))
    return replace(bundled, files=(*bundled.files, file), system_prompt=record)


def keep(
    prompt: PreparedPrompt, previous: Path, folder: str, target: Path
) -> PreparedPrompt | None:
    """Reuse an earlier package's caches if they match `prompt`; return their record or None."""
    source = previous / folder / SYSTEM_PROMPT
    try:
        earlier = manifest.read(previous, folder)
        record = earlier.system_prompt
        if record is None or replace(record, tokens=0) != prompt:
            return None
        digests = {file.path: file.sha256 for file in earlier.files}
        if sha256_of(source) != digests.get(SYSTEM_PROMPT):
            return None
        shutil.copyfile(source, target)
    except (UserError, OSError):
        return None
    return record


def compute(
    plan: ModelPlan, target: Path, record: PreparedPrompt, say: ProgressReporter
) -> int:
    """Read the prompt and write its caches; return the number of its tokens."""
    from mlx_lm.models.cache import save_prompt_cache

    takes = gigabytes(needed_bytes(plan.memory))
    say(f"loading the model for the system prompt, which takes about {takes} GB of memory")
    model, tokenizer = load_bundled(target.parent)
    tokens = opening(plan, tokenizer.encode)
    caches = make_caches(model, plan, len(tokens))
    check_kinds(caches, plan.model.config.model_type)
    begun = time.monotonic()
    read(model, caches, tokens, record.chunk, say)
    say(f"read {len(tokens)} tokens in {time.monotonic() - begun:.1f} s", done=True)
    metadata = {name: str(value) for name, value in vars(record).items() if name != "made_by"}
    metadata["tokens"] = json.dumps(tokens)
    scratch = target.with_name(WRITTEN)
    file: Any
    with scratch.open("wb") as file:  # unlike a file that MLX opens, it says why writing fails
        save_prompt_cache(file, caches, metadata)
        file.flush()
        os.fsync(file.fileno())
    scratch.rename(target)
    return len(tokens)


def load_bundled(folder: Path) -> tuple[Any, Any]:
    """Load the model in a package's Model/, with its adapter if it has one."""
    from h2o_pack.measure.models import load

    if not (folder / ADAPTER).exists():
        return load(str(folder))
    with tempfile.TemporaryDirectory() as scratch:  # with the file names that mlx-lm requires
        (Path(scratch) / CONFIG).symlink_to((folder / ADAPTER_CONFIG).resolve())
        (Path(scratch) / WEIGHTS).symlink_to((folder / ADAPTER).resolve())
        return load(str(folder), scratch)


def make_caches(model: Any, plan: ModelPlan, tokens: int) -> list[Any]:
    """Make caches like those of a session that pin the first tokens; UserError if too many."""
    from h2o_py.errors import H2OScoresMissingWarning
    from h2o_py.models import make_h2o_cache

    config = plan.cache
    with pinning(tokens), warnings.catch_warnings():
        warnings.simplefilter("ignore", H2OScoresMissingWarning)
        if tokens:
            config = replace(config, pinned=(*config.pinned, (0, tokens)))
        return make_h2o_cache(
            model,
            config,
            kv=plan.storage.name,
            group_size=plan.storage.group_size,
            budgets=plan.budgets,
        )


def check_kinds(caches: list[Any], family: str) -> None:
    """Raise UserError for caches of a kind that the Swift package cannot read from a file."""
    from mlx_lm.models.cache import ArraysCache, KVCache, RotatingKVCache

    from h2o_py.cache import H2OKVCache

    classes = (H2OKVCache, KVCache, RotatingKVCache, ArraysCache)
    members = [m for cache in caches for m in getattr(cache, "caches", (cache,))]
    kinds = sorted({type(m).__name__ for m in members if not isinstance(m, classes)})
    if kinds:
        raise model_error(
            f"models of the type {family} use {' and '.join(kinds)}, which H2OKit cannot read "
            "from a file",
            "Leave out --system: the app then reads its system prompt in the first turn.",
        )


def read(
    model: Any, caches: list[Any], tokens: list[int], chunk: int, say: ProgressReporter
) -> None:
    """Let a model read tokens in chunks, like a session of the Swift package."""
    import mlx.core as mx

    from h2o_py.prompts import prompt_chunks
    from h2o_py.routing import routed

    begin = 0
    with say.bar("reading the system prompt", len(tokens), "items") as advance, routed():
        for length in prompt_chunks(0, len(tokens), chunk=chunk, alone=0):
            model(mx.array([tokens[begin : begin + length]]), cache=caches)
            mx.eval([cache.state for cache in caches])
            begin += length
            advance(length)


def policy_digest(plan: ModelPlan) -> str:
    """Return the sha256 of the settings that decide which rows are kept and how."""
    budgets = None if plan.budgets is None else plan.budgets.to_dict()
    storage = (plan.storage.name, plan.storage.group_size)
    settings = [plan.cache.to_dict(), *storage, budgets]
    return sha256(json.dumps(settings, sort_keys=True).encode())


def makers() -> str:
    """Return the versions of the libraries that compute the caches."""
    from importlib.metadata import version

    from h2o_pack import __version__

    return f"h2o-pack {__version__}, mlx {version('mlx')}, mlx-lm {version('mlx-lm')}"
