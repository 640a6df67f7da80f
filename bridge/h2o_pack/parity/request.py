"""Level 3's request: what mlx-lm made of a prompt and of texts, for Swift to do as well.

A folder with request.json, which Swift reads, and expected.safetensors with what mlx-lm
made: the logits [vocabulary] named "<case>.<step>", step 0 the prompt's, and the positions
int32 [B, Hkv, C] that each H2O cache keeps at last, named "<case>.kept.<layer>".
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from h2o_pack.facts import unsplit_prompts
from h2o_pack.parity.trace import load, prompt_length, prompt_tokens
from h2o_py import H2OScoresMissingWarning, make_h2o_cache
from h2o_py.budgets import Budgets
from h2o_py.config import H2OConfig
from h2o_py.recall import H2ORecall
from h2o_py.routing import routed

FORMAT = 1
FILE, EXPECTED = "request.json", "expected.safetensors"
PROBES = Path(__file__).parent / "probes.json"
FULL = "full cache"
DECODED = 48
# Cases in which mlx-lm differs from itself too when each weight is moved by one rounding.
# r8h4: by 0.1 to 0.2, since rows that leave the ring go from 8 bits to 4, whose codes stand at
# codes' boundaries. Recall from 4 bits while decoding: by 0.01 to 0.08 in small random models,
# each recall choosing among rows that ask alike. Levels 1 and 2, where both sides get the same
# keys and values, do compare them.
LEFT_OUT = {"float32": ("kv r8h4", "kv k8v4, recall")}
# {how rows are stored: the settings of recall}
RECALL = {"dense": H2ORecall(archive_bits=16), "k8v4": H2ORecall(every=8)}


@dataclass(frozen=True)
class Text:
    """A text, or a user's message for the chat template, and mlx-lm's ids of it."""

    text: str
    message: bool
    ids: tuple[int, ...]


@dataclass(frozen=True)
class TokenCase:
    """One run. kv: a name in h2o_py.models.STORAGES, or None for the model's own caches.

    tokens: what mlx-lm chose after the prompt and after each of these; evicting: which of
    the model's caches are H2O caches; budgets: the document of those that differ from layer
    to layer, if they do.
    """

    name: str
    kv: str | None
    group_size: int
    config: dict[str, Any]
    tokens: tuple[int, ...]
    evicting: tuple[bool, ...]
    budgets: dict[str, Any] | None = None


@dataclass(frozen=True)
class ByLayer:
    """A package's own budgets, and how it stores rows."""

    budgets: Budgets
    kv: str
    group_size: int


@dataclass(frozen=True)
class Request:
    """Everything asked.

    prefill: tokens of the longest chunk of the prompt; left_out: cases, see LEFT_OUT.
    """

    folder: Path
    dtype: str
    prompt: tuple[int, ...]
    prefill: int
    texts: tuple[Text, ...]
    cases: tuple[TokenCase, ...]
    left_out: tuple[str, ...] = ()


def ask(
    model_folder: Path,
    config: H2OConfig,
    context: int,
    storages: Mapping[str, int],
    folder: Path,
    by_layer: ByLayer | None = None,
) -> Request:
    """Run mlx-lm and write the request to `folder`.

    context: tokens that the model may see; storages: {kv: group size} beside dense rows;
    by_layer: a further case, if the package has budgets that differ from layer to layer.
    """
    model, tokenizer = load(model_folder)
    length = prompt_length(config.max_size, context)
    prompt = prompt_tokens(tokenizer, length)
    prefill = len(prompt) if model.model_type in unsplit_prompts() else config.max_size
    cases: list[TokenCase] = []
    left_out: list[str] = []
    expected: dict[str, mx.array] = {}
    dtype = ""
    for run in runs(config, storages, by_layer):
        kv, group_size, budgets = run.kv, run.group_size, run.budgets
        name = run.name
        if name.removesuffix(", by layer") in LEFT_OUT.get(dtype, ()):
            left_out.append(name)
            continue
        caches = make_caches(model, run.config, kv, group_size, budgets)
        tokens, logits = generate(model, caches, prompt, prefill)
        expected |= {f"{name}.{step}": each for step, each in enumerate(logits)}
        dtype = str(logits[0].dtype).removeprefix("mlx.core.")
        evicting = tuple(hasattr(cache, "attend") for cache in caches)
        expected |= {
            f"{name}.kept.{layer}": cache.positions
            for layer, cache in enumerate(caches)
            if evicting[layer]
        }
        told = None if budgets is None else budgets.to_dict()
        cases.append(
            TokenCase(name, kv, group_size, run.config.to_dict(), tuple(tokens), evicting, told)
        )
    texts = probe(tokenizer, tokenizer.decode(prompt))
    request = Request(
        folder, dtype, tuple(prompt), prefill, texts, tuple(cases), tuple(left_out)
    )
    folder.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(folder / EXPECTED), expected)
    document = {"format": FORMAT, **asdict(request)}
    del document["folder"]
    (folder / FILE).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return request


@dataclass(frozen=True)
class Run:
    """What a case is run with; see TokenCase."""

    name: str
    kv: str | None
    group_size: int
    config: H2OConfig
    budgets: Budgets | None = None


def runs(
    config: H2OConfig, storages: Mapping[str, int], by_layer: ByLayer | None
) -> Iterator[Run]:
    """Yield the runs; without recall if the case is not of recall."""
    plain = replace(config, recall=None)
    yield Run(FULL, None, 64, plain)
    groups = {"dense": 64, **storages}
    for kv, group_size in groups.items():
        yield Run(f"kv {kv}", kv, group_size, plain)
    for kv, recall in RECALL.items():
        recalling = replace(config, recall=recall)
        if kv in groups and recalling.recall_rows:
            yield Run(f"kv {kv}, recall", kv, groups[kv], recalling)
    if by_layer is not None:
        yield Run(
            f"kv {by_layer.kv}, by layer",
            by_layer.kv,
            by_layer.group_size,
            config,
            by_layer.budgets,
        )


def make_caches(
    model: Any, config: H2OConfig, kv: str | None, group_size: int, budgets: Budgets | None
) -> list[Any]:
    """Make the model's own caches, or H2O caches that store rows as `kv` says."""
    if kv is None:
        return list(make_prompt_cache(model))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", H2OScoresMissingWarning)
        return make_h2o_cache(
            model, config, kv=kv, group_size=group_size, budgets=budgets, one_choice=False
        )


def generate(
    model: Any,
    caches: list[Any],
    prompt: list[int],
    prefill: int,
    given: Sequence[int] = (),
    before_step: Callable[[int], None] = lambda _step: None,
) -> tuple[list[int], list[mx.array]]:
    """Choose DECODED tokens greedily; return them and the logits that each came from.

    The prompt comes in the chunks of mlx-swift-lm's `LLMModel.prepare`: of `prefill` tokens
    while more are left, and the rest.

    given: tokens to go on with in place of the chosen ones. before_step: called before each
    token after the prompt, with the number of the step.
    """
    tokens: list[int] = []
    logits: list[mx.array] = []
    left = prompt
    with routed():
        while len(left) > prefill:
            mx.eval(model(mx.array([left[:prefill]]), cache=caches))
            left = left[prefill:]
        while len(tokens) < DECODED:
            if tokens:
                before_step(len(tokens))
            last = model(mx.array([left]), cache=caches)[0, -1]
            mx.eval(last)
            logits.append(last)
            tokens.append(int(mx.argmax(last)))
            left = [given[len(tokens) - 1]] if given else tokens[-1:]
    return tokens, logits


def probe(tokenizer: Any, prompt: str) -> tuple[Text, ...]:
    """Encode the prompt's text and the probes; with a chat template, as messages too."""
    probes: list[str] = json.loads(PROBES.read_text("utf-8"))
    texts = [
        Text(text, message=False, ids=encode(tokenizer, text)) for text in (prompt, *probes)
    ]
    if tokenizer.has_chat_template:
        texts += [
            Text(text, message=True, ids=converse(tokenizer, text)) for text in probes if text
        ]
    return tuple(texts)


def encode(tokenizer: Any, text: str) -> tuple[int, ...]:
    """Return the ids of a text, with the special tokens that belong to it."""
    return tuple(tokenizer.encode(text))


def converse(tokenizer: Any, text: str) -> tuple[int, ...]:
    """Return the ids of a conversation that a user's message opens."""
    messages = [{"role": "user", "content": text}]
    ids = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    return tuple(ids)
