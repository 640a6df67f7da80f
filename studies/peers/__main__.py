"""`python -m studies.peers`: docs/results/peers.md and peers.json."""

from __future__ import annotations

import argparse
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from studies.peers.entries import PREFILL
from studies.peers.page import Results, document, render, results_of
from studies.tiny_lm.files import sha256, write_json

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "bridge" / "h2o_pack" / "models" / "demo"
RESULTS = ROOT / "docs" / "results"
ABOUT = ("sha256", "difference", "kvpress", "prefill")


def main() -> None:
    """Run both sides and write the table."""
    parser = argparse.ArgumentParser(prog="python -m studies.peers", description=__doc__)
    parser.add_argument("--model", type=Path, default=MODEL, help="with held_out/ in it")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--page", action="store_true", help="only the page, from peers.json")
    options = parser.parse_args()
    if options.page:
        known = json.loads((options.results / "peers.json").read_text(encoding="utf-8"))
        write(options.results, results_of(known), {name: known[name] for name in ABOUT})
        return
    from studies.peers.run import difference_of_logits, run  # noqa: PLC0415 - needs kvpress

    about = {
        "sha256": sha256(options.model / "model.safetensors"),
        "difference": difference_of_logits(options.model),
        "kvpress": version("kvpress"),
        "prefill": PREFILL,
    }
    results = run(options.model, options.processes, say)
    write(options.results, results, about)


def write(folder: Path, results: Results, about: dict[str, Any]) -> None:
    """Write what was found, and the page."""
    write_json(folder / "peers.json", document(results, about))
    (folder / "peers.md").write_text(render(results, about), encoding="utf-8")


def say(line: str) -> None:
    """Print a line of progress at once."""
    print(line, flush=True)  # noqa: T201 - this is a program for a terminal


if __name__ == "__main__":
    main()
