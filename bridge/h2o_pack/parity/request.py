"""Level 3's request: a prompt and texts, with the results of mlx-lm that Swift must reproduce.

A request is a folder with request.json, which Swift reads, and expected.safetensors with the
results of mlx-lm: logits [vocabulary] named "<case>.<step>", where step 0 is the prompt, and
the positions int32 [B, Hkv, C] that each H2O cache keeps at the end, named
"<case>.kept.<layer>".
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import RotatingKVCache, make_prompt_cache

from h2o_pack.facts import own_prefills
from h2o_pack.parity.trace import DECODED, SHORTEST, load, prompt_tokens
from h2o_py import H2OScoresMissingWarning, make_h2o_cache
from h2o_py.budgets import Budgets
from h2o_py.config import H2OConfig, H2ORecall
from h2o_py.routing import routed

FORMAT = 1
FILE, EXPECTED = "request.json", "expected.safetensors"
PROBES = Path(__file__).parent / "probes.json"
FULL = "full cache"
BY_LAYER = ", by layer"
# Cases that level 3 leaves out, because mlx-lm's own logits change too much when each weight is
# moved by one rounding. With r8h4 they change by 0.1 to 0.2: rows that leave the ring go from 8
# bits to 4, and many of their values lie on the boundary between two codes. With recall from 4
# bits while decoding they change by 0.01 to 0.08 in small random models: each recall chooses
# among rows with almost equal weights. Levels 1 and 2 compare these cases: there both sides get
# the same keys and values.
LEFT_OUT = {"float32": ("kv r8h4", "kv k8v4, recall")}
# Settings of recall by the storage of the rows.
RECALL = {"dense": H2ORecall(archive_bits=16), "k8v4": H2ORecall(every=8)}


@dataclass(frozen=True)
class Text:
    """A text, and its token ids in mlx-lm.

    message: whether the text is a user's message, written with the chat template.
    """

    text: str
    message: bool
    ids: tuple[int, ...]


@dataclass(frozen=True)
class TokenCase:
    """A run of the model, and the tokens that mlx-lm chose in it.

    kv: a name in h2o_py.models.STORAGES, or None for mlx-lm's caches. budgets: by layer; None
    if all layers are equal. tokens: chosen after the prompt and after each token; empty before
    the run. evicting: which of the model's caches are H2O caches; empty before the run.
    """

    name: str
    kv: str | None
    group_size: int
    config: H2OConfig
    budgets: Budgets | None = None
    tokens: tuple[int, ...] = ()
    evicting: tuple[bool, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the case as the Swift tests read it."""
        budgets = None if self.budgets is None else self.budgets.to_dict()
        return {**vars(self), "config": self.config.to_dict(), "budgets": budgets}

    def make_caches(self, model: Any) -> list[Any]:
        """Make mlx-lm's caches, or H2O caches with the storage `kv`, one per layer."""
        if self.kv is None:
            return list(make_prompt_cache(model))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", H2OScoresMissingWarning)
            return make_h2o_cache(
                model,
                self.config,
                kv=self.kv,
                group_size=self.group_size,
                budgets=self.budgets,
            )


@dataclass(frozen=True)
class Request:
    """All texts and cases that Swift must reproduce.

    prompt: token ids. prefill: tokens per chunk of the prompt, as Swift sets it. chunks: tokens
    of each chunk that mlx-swift-lm then reads. left_out: names of cases, see LEFT_OUT.
    """

    folder: Path
    dtype: str
    prompt: tuple[int, ...]
    prefill: int
    chunks: tuple[int, ...]
    texts: tuple[Text, ...]
    cases: tuple[TokenCase, ...]
    left_out: tuple[str, ...] = ()


def ask(
    model_folder: Path,
    config: H2OConfig,
    context: int,
    storages: Mapping[str, int],
    folder: Path,
    own: TokenCase | None = None,
    say: Callable[[str], None] = lambda _text: None,
) -> Request:
    """Run mlx-lm and write the request to `folder`.

    context: the most tokens that the model may see. storages: {kv: group size} to run beside
    dense rows. own: one more case, for a package whose budgets differ by layer. say: called
    with each case's name.
    """
    model, tokenizer = load(model_folder)
    prompt = prompt_tokens(tokenizer, prompt_length(config.max_size, context))
    prefill, window = config.max_size, 0
    if model.model_type in own_prefills():
        rings = (c for c in make_prompt_cache(model) if isinstance(c, RotatingKVCache))
        window = min(int(ring.max_size) for ring in rings)
    chunks = prompt_chunks(len(prompt), prefill, window)
    cases: list[TokenCase] = []
    left_out: list[str] = []
    expected: dict[str, mx.array] = {}
    dtype = ""
    for case in (*token_cases(config, storages), *([own] if own else [])):
        name = case.name
        if name.removesuffix(BY_LAYER) in LEFT_OUT.get(dtype, ()):
            left_out.append(name)
            continue
        say(f"running the model in mlx-lm: {name}")
        caches = case.make_caches(model)
        tokens, logits = generate(model, caches, prompt, chunks)
        dtype = str(logits[0].dtype).removeprefix("mlx.core.")
        evicting = tuple(hasattr(cache, "attend") for cache in caches)
        expected |= {f"{name}.{step}": array for step, array in enumerate(logits)}
        expected |= {
            f"{name}.kept.{layer}": cache.positions
            for layer, cache in enumerate(caches)
            if evicting[layer]
        }
        cases.append(replace(case, tokens=tuple(tokens), evicting=evicting))
    texts = probe(tokenizer, tokenizer.decode(prompt))
    request = Request(
        folder, dtype, tuple(prompt), prefill, chunks, texts, tuple(cases), tuple(left_out)
    )
    folder.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(folder / EXPECTED), expected)
    document = {
        **vars(request),
        "format": FORMAT,
        "texts": [vars(text) for text in texts],
        "cases": [case.document() for case in cases],
    }
    del document["folder"], document["chunks"]
    (folder / FILE).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return request


def prompt_length(max_kv: int, context: int) -> int:
    """Return the prompt's length: a little more than `max_kv`, so that its last chunk evicts.

    It has at least SHORTEST tokens, and leaves room in the context for the decoded tokens.
    """
    return min(max(max_kv + max_kv // 8, SHORTEST), context - DECODED)


def token_cases(config: H2OConfig, storages: Mapping[str, int]) -> Iterator[TokenCase]:
    """Yield the cases to run; only cases with "recall" in their names recall."""
    plain = replace(config, recall=None)
    yield TokenCase(FULL, None, 64, plain)
    groups = {"dense": 64, **storages}
    for kv, group_size in groups.items():
        yield TokenCase(f"kv {kv}", kv, group_size, plain)
    for kv, recall in RECALL.items():
        recalling = replace(config, recall=recall)
        if kv in groups and recalling.recall_rows:
            yield TokenCase(f"kv {kv}, recall", kv, groups[kv], recalling)


def prompt_chunks(tokens: int, chunk: int, window: int = 0) -> tuple[int, ...]:
    """Return the number of tokens of each chunk in which mlx-swift-lm reads a prompt.

    All chunks but the last have `chunk` tokens. If the model has a sliding `window`, chunks are
    not longer than the window, and the last token is a chunk of its own.
    """
    longest, rest = (min(chunk, window), 1) if window else (chunk, chunk)
    chunks: list[int] = []
    while tokens > rest:
        chunks.append(min(longest, tokens - 1))
        tokens -= chunks[-1]
    return (*chunks, tokens)


def generate(
    model: Any,
    caches: list[Any],
    prompt: list[int],
    chunks: Sequence[int],
    forced: Sequence[int] = (),
    before_step: Callable[[int], None] = lambda _step: None,
) -> tuple[list[int], list[mx.array]]:
    """Choose DECODED tokens greedily; return them and the logits of each choice.

    chunks: the number of tokens of each of the prompt's chunks. forced: tokens to continue with
    instead of the chosen ones. before_step: called with the step's number before each token
    after the prompt.
    """
    tokens: list[int] = []
    logits: list[mx.array] = []
    rest = prompt
    with routed():
        for chunk in chunks[:-1]:
            mx.eval(model(mx.array([rest[:chunk]]), cache=caches))
            rest = rest[chunk:]
        while len(tokens) < DECODED:
            if tokens:
                before_step(len(tokens))
            last = model(mx.array([rest]), cache=caches)[0, -1]
            mx.eval(last)
            logits.append(last)
            tokens.append(int(mx.argmax(last)))
            rest = [forced[len(tokens) - 1]] if forced else tokens[-1:]
    return tokens, logits


def probe(tokenizer: Any, prompt: str) -> tuple[Text, ...]:
    """Encode the prompt's text and the probes, also as messages if there is a chat template."""
    probes: list[str] = json.loads(PROBES.read_text("utf-8"))
    texts = [
        Text(text, message=False, ids=tuple(tokenizer.encode(text)))
        for text in (prompt, *probes)
    ]
    if tokenizer.has_chat_template:
        texts += [
            Text(text, message=True, ids=converse(tokenizer, text)) for text in probes if text
        ]
    return tuple(texts)


def converse(tokenizer: Any, text: str) -> tuple[int, ...]:
    """Return the ids of a conversation that consists of one message of the user."""
    messages = [{"role": "user", "content": text}]
    ids = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    return tuple(ids)
