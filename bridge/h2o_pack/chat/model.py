"""Prepares and loads the model of a conversation, with the refusals of `h2o-pack ios`."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from h2o_pack.bundling.bundle import fetched
from h2o_pack.choice.choose import Criteria, choose
from h2o_pack.files.lock import sha256
from h2o_pack.files.text import parse_object
from h2o_pack.models.files import SAMPLING_FILE, local_file
from h2o_pack.models.loading import try_model
from h2o_pack.models.texts import license_remark
from h2o_pack.package.prepare import prepare, resolved_files
from h2o_pack.package.system_prompt import (
    check_memory,
    load_bundled,
    make_caches,
    policy_digest,
)
from h2o_pack.plan.package_plan import ModelPlan
from h2o_pack.progress import ProgressReporter
from h2o_pack.resolved.chat import Chat
from h2o_pack.resolved.files import LEFT_OUT, Resolved
from h2o_pack.spec import AppSpec, DeliverySpec, PackageSpec

TEMPERATURE = 0.6
"""mlx-swift-lm's temperature, if neither the user nor the model's files state one."""


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen: the model's own settings, as in a session."""

    temperature: float = TEMPERATURE
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float | None = None


@dataclass(frozen=True)
class ChatModel:
    """A loaded model, and how conversations with it go.

    plan: as for a package. chat: what is known of the chat template. chunk: the most tokens
    that are read at once. digest: of everything on which the ids and the caches of a
    conversation depend.
    """

    plan: ModelPlan
    model: Any
    tokenizer: Any
    chat: Chat
    sampling: Sampling
    digest: str
    remarks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The model's name."""
        return self.plan.model.id

    @property
    def chunk(self) -> int:
        """The most tokens of a prompt that are read at once."""
        return self.plan.workload.step

    @property
    def context(self) -> int:
        """The most tokens that the model was made for."""
        return self.plan.model.config.context

    def ends(self, pinned: int) -> list[int]:
        """Return the positions at which a chunk ends; pinned: tokens of the system prompt."""
        return [end for begin, end in (*self.plan.cache.pinned, (0, pinned)) if begin == 0]

    def make_caches(self, pinned: int) -> list[Any]:
        """Make caches that never evict the first `pinned` tokens; UserError if too many."""
        return make_caches(self.model, self.plan, pinned)

    def describe(self) -> str:
        """Say in one line which model this is and what its caches keep."""
        workload = self.plan.workload
        rows = f"{workload.max_kv} rows" if self.plan.cache.evicts else "every token kept"
        recall = " and recall" if self.plan.cache.recall else ""
        return f"{self.name}, {rows}, kv {workload.kv}{recall}"


def planned(spec: PackageSpec, criteria: Criteria, say: ProgressReporter) -> ModelPlan:
    """Plan the model of a conversation.

    Raises UserError: what `h2o-pack ios` refuses, except the size of an app.
    """
    # Another delivery than the app itself, whose size the store limits. The conversation has
    # the system prompt, and needs no prepared caches of it.
    spec = replace(spec, delivery=DeliverySpec(asset_pack=True), app=AppSpec())
    [plan] = prepare(choose(spec, criteria, say).spec, say).models
    return plan


def load(spec: PackageSpec, criteria: Criteria, say: ProgressReporter) -> ChatModel:
    """Prepare, fetch and load a model.

    Raises UserError: the model or its settings are refused, it cannot be fetched, or this
    machine has too little memory.
    """
    plan = planned(spec, criteria, say)
    if plan.cache.evicts:
        check_memory(plan.memory)
    folder = fetched(plan.model, say)
    resolved = resolved_files(plan, replace(plan.model, folder=folder))
    with tempfile.TemporaryDirectory(prefix="h2o-pack-") as name:
        own = Path(name)
        place_files(plan, folder, resolved, own)
        say(f"loading {plan.model.id}")
        try_model(plan.model, own)
        model, wrapper = load_bundled(own)
        sampling = sampling_of(own, plan.model.id)
    contents = {file: sha256(written.content) for file, written in resolved.written.items()}
    about = [plan.model.id, plan.model.weights.bytes, contents, policy_digest(plan)]
    return ChatModel(
        plan,
        model,
        # mlx_lm's wrapper sets variables of the chat template, which an app does not.
        wrapper._tokenizer,  # noqa: SLF001
        resolved.chat,
        sampling,
        sha256(json.dumps(about, sort_keys=True).encode()),
        remarks_of(plan),
    )


def place_files(plan: ModelPlan, folder: Path, resolved: Resolved, target: Path) -> None:
    """Fill a folder like a package's Model/, with links to large files."""
    for file in plan.model.files:
        if file.path not in (*LEFT_OUT, *resolved.written):
            place = target / file.path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(local_file(folder, file.path).resolve())
    for name, written in resolved.written.items():
        (target / name).write_bytes(written.content)
    adapter = plan.source.adapter
    if adapter is not None:
        from h2o_pack.files.paths import ADAPTER, ADAPTER_CONFIG
        from h2o_pack.models.adapter import WEIGHTS

        (target / ADAPTER_CONFIG).write_text(adapter.to_json(), encoding="utf-8")
        (target / ADAPTER).symlink_to((adapter.folder / WEIGHTS).resolve())


def sampling_of(folder: Path, where: str) -> Sampling:
    """Return the sampling settings of a model's files, which were checked."""
    path = folder / SAMPLING_FILE
    values = parse_object(path.read_bytes(), path.name, where) if path.exists() else {}
    greedy = {"temperature": 0.0} if values.get("do_sample") is False else {}
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    stated = {name: values[name] for name in names if values.get(name) is not None} | greedy
    return Sampling(**stated)


def remarks_of(plan: ModelPlan) -> tuple[str, ...]:
    """Return the remarks of a plan that matter in a conversation: not the license."""
    license_text = license_remark(plan.source.texts.license)
    return tuple(remark for remark in plan.warnings if remark != license_text)
