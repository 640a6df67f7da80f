"""The page of what replies to random schemas were, and what they cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from studies.guided.judge import Result

PAGE = """\
# Guided output on random schemas

Written by `python -m studies.guided`; not part of CI.

The bundled demo model replies to {count:,} random JSON Schemas (seed {setting.seed}) on \
mlx-swift-lm {setting.version}, Linux, {setting.build}, no GPU. Each cache keeps \
{setting.rows} rows and the prompt has {setting.prompt_characters:,} characters, so that every \
token of every reply evicts one: at the end of a reply each cache had evicted {least:,} to \
{most:,} tokens. Every second reply is greedy, the others are sampled at temperature 1. A \
reply has at most {setting.max_tokens} tokens{more_room}; {full:,} replies had all of them. \
For every \
{setting.every}th as many tokens were generated without a schema after the same prompt. The \
model was trained on Python's library and knows no schemas: what is right in the replies is \
the grammar's doing.

| | median (5th to 95th percentile) |
|---|---|
{figures}
## The first schema

The first schema of a process waits until the engine has read the vocabulary, unless the \
session was prewarmed. With a tokenizer made for this, byte-level BPE of {start.tokens:,} \
tokens, that and the grammar take {first} ms of processor time, the grammar of the next \
schema {following} ms (median of {processes} processes).

## The schemas

| keyword | schemas with it |
|---|---|
{kinds}"""


@dataclass(frozen=True)
class Setting:
    """How the replies were made: rows per cache, most tokens of a reply."""

    seed: int
    version: str
    rows: int
    max_tokens: int
    prompt_characters: int
    build: str
    every: int


@dataclass(frozen=True)
class Start:
    """Seconds of processor time of the first schema in some processes, and of the next one."""

    tokens: int
    first: tuple[float, ...]
    following: tuple[float, ...]


def render(setting: Setting, results: list[Result], start: Start) -> str:
    """Return the page."""
    valid = sum(not result.fault for result in results)
    evicted = [each.evicted for each in results]
    pairs = [
        (each.guided, each.plain)
        for each in results
        if each.plain and each.guided.tokens == each.plain.tokens
    ]
    guided, plain = ([pair[side].per_token for pair in pairs] for side in (0, 1))
    more = [a - b for a, b in zip(guided, plain, strict=True)]
    wait = [1000 * (one.first - other.first) for one, other in pairs]
    full = sum(each.guided.tokens == (each.room or setting.max_tokens) for each in results)
    roomy = [each.room for each in results if each.room]
    more_room = (
        f" (in {len(roomy)} as many as the schema's refusal names: at most {max(roomy)})"
        if roomy
        else ""
    )
    kinds = Counter(kind for result in results for kind in set(keywords(result.schema)))
    figures = {
        "instances of their schema, says the validator jsonschema": f"**{valid:,} of "
        f"{len(results):,}**",
        "tokens of a reply": spread([float(each.guided.tokens) for each in results], 0),
        "ms of processor time per token with a schema": spread(guided, 2),
        "the same without": spread(plain, 2),
        "more for the schema, its grammar included": spread(more, 2),
        "ms more until the first token (the grammar is made)": spread(wait, 1),
    }
    return PAGE.format(
        count=len(results),
        setting=setting,
        least=min(evicted),
        most=max(evicted),
        full=full,
        more_room=more_room,
        start=start,
        first=f"{1000 * median(start.first):.0f}",
        following=f"{1000 * median(start.following):.0f}",
        processes=len(start.first),
        figures="".join(f"| {name} | {value} |\n" for name, value in figures.items()),
        kinds="".join(f"| `{name}` | {count:,} |\n" for name, count in sorted(kinds.items())),
    )


def spread(values: list[float], digits: int) -> str:
    """Return the median, with the 5th and 95th percentile."""
    cuts = quantiles(values, n=20)
    return f"{median(values):.{digits}f} ({cuts[0]:.{digits}f} to {cuts[-1]:.{digits}f})"


def keywords(schema: Any) -> Iterable[str]:
    """Yield the keywords of a schema and the schemas in it."""
    if not isinstance(schema, dict):
        return
    for keyword, value in schema.items():
        if keyword == "type" and isinstance(value, str):
            yield f"type: {value}"
        else:
            yield keyword
        if keyword in ("properties", "$defs"):
            for each in value.values():
                yield from keywords(each)
        elif keyword in ("items", "additionalProperties"):
            yield from keywords(value)
        elif keyword in ("anyOf", "prefixItems"):
            for each in value:
                yield from keywords(each)
