"""Write the pages of finished studies again, from their figures in docs/results.

    python -m studies.pages

The programs are in the project's history: those that compared, `git show eff7b2a1:studies`; the
one that trained and measured the bundled models, `git show d18b0485:studies/tiny_lm`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from h2o_pack.measure.tables import markdown_table

ROOT = Path(__file__).parents[1]
RESULTS, MODELS = ROOT / "docs/results", ROOT / "bridge/h2o_pack/models"
CARDS = ("demo", "demo-4bit")

POLICIES = """\
# Which rows to keep

Policies for evicting rows, tried on the bundled demo model. Each one chose the row that the
next token replaces, in a simulation of the model's own arithmetic in float32 (`studies/policy`
of commit eff7b2a1, whose tests compared the simulation with the real cache).

- Of the model's eight KV heads, two look far back. If these two keep all rows, the model
  recalls all facts and predicts text nearly as well as with a full cache; for the other six a
  window is best. A policy for all heads must tell them apart.
- Plain novelty, 1 - cos(key, mean of keys), is high for every key of a head whose keys have
  no common direction. There it keeps rows at random, which is worse for text than a window.
  How far a key's cosine falls below its head's typical cosine marks outliers in the heads
  that retrieve, and is small elsewhere; the margin subtracts what ordinary text has.
- A peak that fades slowly keeps rows that were used once and never again. Fading by 0.97
  (half in 23 tokens) is best for text, and novelty keeps what was not asked for yet.
- With few facts, a shorter recent window costs nearly nothing; with many facts of one form,
  it is what keeps them.
- With equal rows in all layers, no policy predicts plain text better than a window at 1/4 and
  1/8 of the rows, and facts among many of their form are lost at 1/8.
- More rows for the layers that look far back improve both, in the same bytes and with any
  policy: the heads of the two lower layers need only a window. The least number of rows per
  layer hardly matters, from a quarter to three quarters of the common number; half was taken.

The tables show {count} samples of {length:,} tokens of held-out source (seeds {seeds}). A fact
stands at a depth of 0.1, 0.2, 0.3 or 0.6 and is asked for at the end, alone or among 12 others
of its form. nll is of the text without the facts, in nats per token. The last column is the
difference to sinks + recent on the same samples, with its 95% bootstrap interval; *better* and
*worse* mean that the interval excludes 0.
"""
ROTATION = """\
# Rows rotated before they are quantized

Measured by `studies/rotation` of commit eff7b2a1 on the bundled demo model. {count} samples \
of {length:,} tokens of held-out source (seeds {seeds}), each with one fact to be found \
among 12 others of its form, read token by token through the real caches. A rotated cache \
gets queries, keys and values that a Hadamard matrix with random signs has turned, and its \
output is turned back; 3 bits are rounded to on writing. KL is to the full cache's \
predictions, in nats per token, with its 95% bootstrap interval. The first verdict compares \
a rotated cache with the plain one of the same storage, the second every cache with the one \
of least KL in the table.
"""
PEERS = """\
# The cache beside kvpress

The bundled demo model (sha256 `{sha256}`) in mlx-lm and in transformers, both in \
float32: their logits differ by at most {difference:.1e}. 24 samples of 1,024 held-out tokens \
(seeds 1, 2, 3); one fact in the first 40% of the text, alone or among 12 others of the same \
form, asked for at the end; recall is all four digits, greedy. Measured by `studies/peers` of \
commit eff7b2a1; every sample's value is in [peers.json](peers.json).

- *once*: the whole context with full attention, then one compression before the question is \
known. After that nothing is evicted: the question and what follows come on top of the kept \
rows. That is how kvpress works, and it needs memory for the whole context. Ours does the \
same here: one chunk, one eviction, rows that grow.
- *token by token*: {prefill} tokens at once, then single tokens, evicting all along: never \
more rows than are kept, while reading and while answering. It is how the cache is meant to be \
used, and the harder task.
- *recall every 4*: evicted rows are kept in an archive in 4 bits, and every fourth token \
brings back those that it asks for; never more rows than are kept are resident.
- *rows by layer*: so many rows on average, allocated from the committed profile \
(docs/profiling-and-budgets.md).

kvpress {kvpress}, its presses with their defaults. ObservedAttention is its press in the \
manner of H2O. Intervals are 95% bootstrap intervals.
"""
TASKS = (
    ("fact", "Recall, one fact", 2),
    ("decoys", "Recall, 12 decoys", 2),
    ("text", "Nll of the next 128 tokens", 3),
)
TITLES = {
    "default": "**ours, the default**",
    "default+recall4": "**ours, the default, recall every 4**",
    "tuned": "ours, tuned",
    "tuned_by_layer": "**ours, tuned, rows by layer**",
    "paper_heavy": "ours, the published H2O policy",
    "sinks_recent": "ours, sinks + recent",
    "full": "full cache",
}
PROTOCOLS = {
    "kvpress": "kvpress, once",
    "token by token": "h2o_py, token by token",
    "once": "h2o_py, once",
}


def peers(document: dict[str, Any]) -> str:
    """Write the cache beside kvpress's presses: a table per task, a column per budget."""
    lines = [PEERS.format(**document)]
    entries = {(e["side"], e["name"], e["rows"]): e["tasks"] for e in document["entries"]}
    budgets = sorted({rows for _, _, rows in entries if rows}, reverse=True)
    header = ["", "Protocol", *(f"{rows} rows (1/{1024 // rows})" for rows in budgets)]
    contenders = dict.fromkeys((side, name) for side, name, rows in entries if rows)
    for task, title, digits in TASKS:
        full = estimate(entries["token by token", "full", 0][task], digits)
        rows = [["full cache", "all rows", *[full] * len(budgets)]]
        for side, name in contenders:
            values = [estimate(entries[side, name, rows][task], digits) for rows in budgets]
            rows.append([TITLES.get(name, name), PROTOCOLS[side], *values])
        lines += [f"## {title}", "", *markdown_table(header, rows), ""]
    return "\n".join([*lines, "## Verdict", "", *(f"- {v}" for v in document["verdicts"]), ""])


def estimate(figures: dict[str, float], digits: int) -> str:
    """Return a mean with its interval."""
    return "{mean:.{d}f} ({low:.{d}f}-{high:.{d}f})".format(**figures, d=digits)


def rotation(document: dict[str, Any]) -> str:
    """Write rotated rows beside plain ones, at equal bytes."""
    header = ("cache", "KB", "KL, nats", "rotated against plain", "against the best", "facts")
    lines = [ROTATION.format(**document["settings"])]
    for level in document["levels"]:
        kilobytes = f"{level['bytes'] / 1024:,.0f}"
        rows = [
            (
                cache["cache"],
                kilobytes,
                "{:.4f} [{:.4f}, {:.4f}]".format(cache["kl"], *cache["interval"]),
                cache["to_plain"],
                cache["to_best"],
                f"{cache['facts']:.2f}",
            )
            for cache in level["caches"]
        ]
        lines += ["", f"## At the {level['title']}", "", *markdown_table(header, rows)]
    return "\n".join(lines) + "\n"


def policies(document: dict[str, Any]) -> str:
    """Write the simulated policies, at each number of rows."""
    settings = document["settings"]
    count, seeds = settings["samples"] * len(settings["seeds"]), map(str, settings["seeds"])
    header = ("policy", "recall, one fact", "recall, 12 decoys", "nll", "to sinks + recent")
    lines = [POLICIES.format(count=count, length=settings["length"], seeds=", ".join(seeds))]
    for number in map(str, settings["rows"]):
        rows = [
            policy_row(policy, by_rows[number])
            for policy, by_rows in document["policies"].items()
            if number in by_rows
        ]
        lines += ["", f"## {number} rows", "", *markdown_table(header, rows)]
    return "\n".join(lines) + "\n"


def policy_row(policy: str, kinds: dict[str, Any]) -> tuple[str, ...]:
    """Return one line of the table of policies."""
    fact, (low, high) = kinds["fact"], kinds["fact"]["interval"]
    difference = f"{fact['difference']:+.3f} ({low:+.3f} to {high:+.3f}), {fact['verdict']}"
    recalls = (f"{kinds[kind]['recall']:.2f}" for kind in ("fact", "decoys"))
    return (policy, *recalls, f"{fact['nll']:.3f}", difference)


TRAINED_BY = "d18b0485"
"""The commit whose program has the hash that the card states."""
CARD = """\
---
license: mit
---

# {name}: a 2 M-parameter model that can show forgetting

For tests and demonstrations of h2o-pack, so that everything runs offline. It is not meant
to be talked to. This card is written by `python -m studies.pages`.

| | |
|---|---|
| Architecture | Qwen3: hidden {hidden}, {layers} layers, {heads} query and {kv_heads} KV \
heads of {head_dim}, feed-forward {feed_forward}, RoPE theta {rope_theta:,.0f}, tied \
embeddings |
| Context | {context:,} tokens |
| Vocabulary | {vocabulary:,}, byte-level BPE, every digit a token |
| Parameters | {parameters:,} |
| Weights | {weights}, {bytes:,} bytes |
| sha256 of model.safetensors | `{sha256}` |
| sha256 of the corpus | `{corpus_sha256}` |
| sha256 of the program | `{program_sha256}` |
| The program | `studies/tiny_lm` in commit {commit} of the project |

## Data

The sources ({source_files} files) and help topics ({topics}) of Python {python}'s standard \
library: {source_tokens:,} tokens of source and {prose_tokens:,} of prose are trained on. \
Whole documents are held out by the MD5 of their names ({held_out_files} and \
{held_out_topics}); they lie in `{held_out}`, with {held_out_names} words that were never a \
fact's name. Facts such as "the code of LANTERN is 4821.", stated in the text and asked for \
again later, are made while training.

## Recipe

Seed {seed}. Muon for matrices (rate {muon_rate}) and AdamW for the rest (rate {adam_rate}), \
weight decay {weight_decay}; {tokens:,} tokens in {steps:,} steps: {stages}. The rate falls in \
a straight line over the last {decay_share:.0%}. {recall_share:.0%} of the sequences have \
facts that are asked for (answers weigh {answer_weight:g}), {copy_share:.0%} at first and \
{late_copy_share:.0%} later is copying, the rest is text, {prose_share:.0%} of it prose. In \
the last {quantised_share:.0%} every other step sees its weights as the 4-bit variant will \
hold them. Took {minutes:.0f} minutes on {threads} CPU threads, PyTorch {torch}; the curve is \
docs/results/tiny-lm/loss-curve.png. A rerun is the same recipe, not the same bits: sums in \
parallel are rounded in another order.

## What it can do

Through mlx-lm{precision}, greedy, {facts} random facts each, in held-out source and with \
held-out words; a fact is asked for after at least so many tokens.

{recall}

| Held out | nats per token | bits per byte | {ngram}-gram, nats per token |
|---|---|---|---|
{losses}

The {ngram}-gram model has modified Kneser-Ney smoothing and the same tokens and training \
text. Losses are over windows of {window:,} tokens that do not overlap.

## Limits

It has seen little prose, follows no instructions, has no chat template and knows nothing of \
the world. It recalls facts in the forms it was trained on. What an eviction policy does to it \
says little about large models.

## License

The training text is the Python standard library's and its documentation's, under the Python \
Software Foundation License Version 2. The weights are distributed under the project's own \
license.
"""


def card(name: str) -> str:
    """Write the card of the bundled model ("demo") or of its variant ("demo-4bit")."""
    record, measured = (
        figures(f"tiny-lm/{part}.json") for part in ("training", "measurements")
    )
    entry = measured["models"][name]
    recipe = record["recipe"]
    packed = f"{recipe['bits']} bits, groups of {recipe['group_size']} (mlx_lm.convert)"
    original = name == "demo"
    facts = {
        **record["recipe"],
        **record["architecture"],
        **record["corpus"],
        **{key: value for key, value in record.items() if not isinstance(value, dict)},
        "name": name,
        "precision": "" if original else " in float32 with the packed weights",
        "weights": "bfloat16" if original else packed,
        "held_out": "held_out/" if original else "../demo/held_out/",
        "minutes": record["curve"]["minutes"],
        "stages": stages(record["recipe"]["stages"]),
        "commit": TRAINED_BY,
        "bytes": entry["bytes"],
        "sha256": entry["sha256"],
        "facts": measured["facts"],
        "ngram": measured["order"],
        "window": measured["window"],
        "recall": recall_table(entry["recall"], measured["facts"]),
        "losses": "\n".join(loss_rows(entry["losses"], measured["ngram"])),
    }
    return CARD.format(**facts)


def stages(parts: list[dict[str, int]]) -> str:
    """Say how long sequences were for how many tokens."""
    return ", ".join(
        f"{stage['total'] / 1e6:g} M at length {stage['length']:,}" for stage in parts
    )


def recall_table(recalls: Iterable[dict[str, int]], facts: int) -> str:
    """Return one row per trial."""
    rows = ["| Tokens between | Other facts between | Cache | Recall |", "|---|---|---|---|"]
    for trial in recalls:
        cache = f"`RotatingKVCache({trial['window']}, keep=4)`" if trial["window"] else "full"
        share = trial["right"] / facts
        rows.append(f"| {trial['distance']:,} | {trial['others']} | {cache} | {share:.2f} |")
    return "\n".join(rows)


def loss_rows(
    losses: dict[str, dict[str, float]], ngram: dict[str, dict[str, float]]
) -> Iterable[str]:
    """Return one row per part of the held-out text."""
    for part, loss in losses.items():
        yield (
            f"| {part} | {loss['nats_a_token']:.3f} | {loss['bits_a_byte']:.3f} "
            f"| {ngram[part]['nats_a_token']:.3f} |"
        )


PAGES: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "peers.md": ("peers.json", peers),
    "rotation/README.md": ("rotation/results.json", rotation),
    "policy/README.md": ("policy/finalists.json", policies),
}
"""Each page, the figures that it shows, and what writes it."""


def text(page: str) -> str:
    """Return a page's text."""
    file, write = PAGES[page]
    return write(figures(file))


def figures(file: str) -> dict[str, Any]:
    """Read a study's figures."""
    document: dict[str, Any] = json.loads((RESULTS / file).read_text(encoding="utf-8"))
    return document


if __name__ == "__main__":
    for name in PAGES:
        (RESULTS / name).write_text(text(name), encoding="utf-8")
    for name in CARDS:
        (MODELS / name / "README.md").write_text(card(name), encoding="utf-8")
