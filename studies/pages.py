"""Writes the pages of finished studies from their figures in docs/results.

    python -m studies.pages

The programs that measured the figures are in earlier commits: `git show eff7b2a1:studies` shows
the programs of the comparisons, and `git show d18b0485:studies/tiny_lm` shows the program that
trained and measured the bundled models.
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

Policies for evicting rows, tried on the bundled demo model. In a simulation of the model in
float32, each policy chose the row that the next token replaces (`studies/policy` of commit
eff7b2a1, whose tests compared the simulation with the real cache).

- Two of the model's eight KV heads look far back. If these two keep all rows, the model recalls
  all facts and predicts text nearly as well as with a full cache; for the other six heads, a
  window is best. A policy for all heads must distinguish them.
- Plain novelty, 1 - cos(key, mean of keys), is high for every key of a head whose keys have no
  common direction. In such a head it keeps rows at random, which predicts text worse than a
  window. The difference between the head's typical cosine and a key's cosine is large for
  outliers in heads that retrieve facts, and small in other heads. The margin is subtracted so
  that ordinary text has no novelty.
- With slow decay, the peak score keeps rows that were used once and never again. A decay of
  0.97 (half after 23 tokens) predicts text best, and novelty keeps rows that no query has used
  yet.
- With few facts, a shorter recent window costs nearly nothing; with many facts of one form,
  only a shorter recent window leaves room for them.
- With equal rows in all layers, no policy predicts plain text better than a window at 1/4 and
  1/8 of the rows, and facts among many others of their form are lost at 1/8.
- More rows for the layers that look far back improve both text and facts, with the same bytes
  and any policy: the heads of the two lower layers need only a window. The smallest number of
  rows that a layer may get hardly matters between a quarter and three quarters of the average;
  h2o-pack uses half of it.

The tables show {count} samples of {length:,} tokens of held-out source code (seeds {seeds}).
A fact is at a depth of 0.1, 0.2, 0.3 or 0.6 of the text and is asked for at the end, alone or
among 12 other facts of its form. nll is of the text without the facts, in nats per token. The
last column is the difference to sinks + recent on the same samples, with its 95% bootstrap
interval; *better* and *worse* mean that the interval excludes 0.
"""
ROTATION = """\
# Rows rotated before they are quantized

Measured by `studies/rotation` of commit eff7b2a1 on the bundled demo model. The model read \
{count} samples of {length:,} tokens of held-out source code (seeds {seeds}) token by token \
with the real caches; each sample has one fact to recall among 12 other facts of its form. A \
Hadamard matrix with random signs rotates the queries, keys and values of a rotated cache, \
and rotates its output back. Rows of 3 bits are emulated by rounding values when they are \
written. KL is the divergence from the full cache's predictions, in nats per token, with its \
95% bootstrap interval. The first verdict compares a rotated cache with the plain cache of \
the same storage; the second compares every cache with the cache of the least KL in the \
table.
"""
PEERS = """\
# The cache beside kvpress

The bundled demo model (sha256 `{sha256}`) in mlx-lm and in transformers, both in float32: \
their logits differ by at most {difference:.1e}. There are 24 samples of 1,024 held-out \
tokens (seeds 1, 2, 3). Each sample has one fact in the first 40% of the text, alone or among \
12 other facts of the same form, and a question for it at the end. Recall is the share of \
greedy answers with all four digits right. Measured by `studies/peers` of commit eff7b2a1; \
every sample's value is in [peers.json](peers.json).

- *once*: the model reads the whole context with full attention, and the cache is compressed \
once, before the question is known. Later nothing is evicted: the question and the answer add \
rows to the kept ones. kvpress works in this way, which needs memory for the whole context. \
For these rows h2o_py does the same: one chunk, one eviction, and rows that grow afterwards.
- *token by token*: the model reads {prefill} tokens at once and then single tokens, and the \
cache evicts at every step. It never has more rows than stated, while reading and while \
answering. This is how the cache is meant to be used, and it is the harder task.
- *recall every 4*: evicted rows are kept in an archive in 4 bits, and every fourth token \
brings back the rows that it attends to; the cache never has more rows than stated.
- *rows by layer*: layers have the stated number of rows on average, allocated from the \
committed profile (docs/profiling-and-budgets.md).

kvpress has version {kvpress}, and its presses have their default settings. ObservedAttention \
is its press that resembles H2O. Intervals are 95% bootstrap intervals.
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
    """Compare the cache with kvpress's presses: a table per task, a column per budget."""
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
    """Compare rotated rows with plain rows at equal bytes."""
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
    """Compare the simulated policies: a table for each number of rows."""
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
"""The commit of the program that trained the models; the card states the program's hash."""
CARD = """\
---
license: mit
---

# {name}: a 2 M-parameter model that can show forgetting

For tests and demonstrations of h2o-pack, so that everything runs offline. It is not meant
for conversations. `python -m studies.pages` writes this card.

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
{held_out_topics}). They are in `{held_out}`, with {held_out_names} words that were never a \
fact's name. Facts such as "the code of LANTERN is 4821." are put into the training text, \
with questions for them later in the text.

## Recipe

Seed {seed}. Muon for matrices (learning rate {muon_rate}) and AdamW for the rest (learning \
rate {adam_rate}), weight decay {weight_decay}; {tokens:,} tokens in {steps:,} steps: \
{stages}. The learning rate falls linearly over the last {decay_share:.0%} of the steps. \
{recall_share:.0%} of the sequences have facts and questions for them (answers have the \
weight {answer_weight:g} in the loss). Copying tasks are {copy_share:.0%} of the sequences at \
first and {late_copy_share:.0%} later. The rest is text, {prose_share:.0%} of it prose. In \
the last {quantised_share:.0%} of the steps, every other step uses weights rounded like those \
of the 4-bit variant. Training took {minutes:.0f} minutes on {threads} CPU threads with \
PyTorch {torch}; the loss curve is docs/results/tiny-lm/loss-curve.png. A rerun gives other \
weights, because parallel sums are rounded in another order.

## What it can do

Measured with mlx-lm{precision}, greedily, on {facts} random facts per row, in held-out \
source and with held-out words. The question comes at least the stated number of tokens after \
the fact.

{recall}

| Held out | nats per token | bits per byte | {ngram}-gram, nats per token |
|---|---|---|---|
{losses}

The {ngram}-gram model uses modified Kneser-Ney smoothing, and the same tokens and training \
text. Losses are over windows of {window:,} tokens that do not overlap.

## Limits

The model was trained on little prose, follows no instructions, has no chat template and has \
no knowledge of the world. It recalls only facts in the forms that it was trained on. The \
effects of an eviction policy on this model say little about large models.

## License

The training text is from the Python standard library and its documentation, under the Python \
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
    """Return the length of the sequences in each stage, with the stage's tokens, as text."""
    return ", ".join(
        f"{stage['total'] / 1e6:g} M at length {stage['length']:,}" for stage in parts
    )


def recall_table(recalls: Iterable[dict[str, int]], facts: int) -> str:
    """Return the table of recall, with a row per trial."""
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
"""By page: the file of its figures, and the function that writes the page."""


def text(page: str) -> str:
    """Return the Markdown of a page, by its name in PAGES."""
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
