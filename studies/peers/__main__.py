"""`python -m studies.peers`: docs/results/peers.md and peers.json."""

from __future__ import annotations

import argparse
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from studies.peers.entries import KVPRESS, PREFILL, Entry
from studies.peers.page import Results, document, render, results_of
from studies.peers.run import difference_of_logits, ours, run, theirs
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
    parser.add_argument(
        "--missing", action="store_true", help="only contenders of ours that peers.json lacks"
    )
    options = parser.parse_args()
    if options.page or options.missing:
        known = json.loads((options.results / "peers.json").read_text(encoding="utf-8"))
        results, about = results_of(known), {name: known[name] for name in ABOUT}
        if options.missing:
            refuse_other(options.model, about)
            wanted = [entry for entry in ours() if entry not in results]
            results |= run(options.model, wanted, options.processes, say)
            results = {entry: results[entry] for entry in (*of_the_peer(results), *ours())}
        write(options.results, results, about)
        return

    about = {
        "sha256": sha256(options.model / "model.safetensors"),
        "difference": difference_of_logits(options.model),
        "kvpress": version("kvpress"),
        "prefill": PREFILL,
    }
    results = run(options.model, theirs() + ours(), options.processes, say)
    write(options.results, results, about)


def of_the_peer(results: Results) -> list[Entry]:
    """Return the peer's contenders of earlier results."""
    return [entry for entry in results if entry.side == KVPRESS]


def refuse_other(model: Path, about: dict[str, Any]) -> None:
    """Refuse to set another model's figures beside those of the peer."""
    found = sha256(model / "model.safetensors")
    if found != about["sha256"]:
        raise SystemExit(f"{model} has sha256 {found}, not {about['sha256']}: run both sides")


def write(folder: Path, results: Results, about: dict[str, Any]) -> None:
    """Write what was found, and the page."""
    write_json(folder / "peers.json", document(results, about))
    (folder / "peers.md").write_text(render(results, about), encoding="utf-8")


def say(line: str) -> None:
    """Print a line of progress at once."""
    print(line, flush=True)  # noqa: T201 - this is a program for a terminal


if __name__ == "__main__":
    main()
