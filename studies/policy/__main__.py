"""Try policies: python -m studies.policy --output docs/results/policy."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # processes share the work, not threads

from studies.policy.catalogue import ALL, BASELINE, FINALISTS
from studies.policy.measure import Job, run
from studies.policy.report import figures, page


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all policies, or the finalists, and write figures and page."""
    parser = argparse.ArgumentParser(prog="python -m studies.policy", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="Folder of the results.")
    parser.add_argument("--name", default="tried", help="Of the results' files.")
    parser.add_argument("--finalists", action="store_true", help="Only the finalists.")
    parser.add_argument("--rows", default="256,128", help="Numbers of rows, with commas.")
    parser.add_argument("--length", type=int, default=1024, help="Tokens of a sample.")
    parser.add_argument("--seeds", default="1", help="With commas.")
    parser.add_argument("--samples", type=int, default=24, help="For each seed.")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(arguments)
    rows = [int(each) for each in options.rows.split(",")]
    seeds = tuple(int(each) for each in options.seeds.split(","))
    names = FINALISTS if options.finalists else tuple(ALL)
    jobs = [
        Job(name, count, options.length, seeds, options.samples)
        for name in (BASELINE, *(each for each in names if each != BASELINE))
        for count in rows
    ]
    settings = {
        "length": options.length,
        "rows": rows,
        "seeds": list(seeds),
        "samples": options.samples,
    }
    target = options.output / options.name
    options.output.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[int, Any]] = {}
    with get_context("spawn").Pool(options.processes) as pool:
        for job, found in zip(jobs, pool.imap(run, jobs), strict=True):
            results.setdefault(job.policy, {})[job.rows] = found
            if len(results[BASELINE]) == len(rows):  # what was found stays if a run is stopped
                write(target, settings, results)
            print(f"{job.policy}, {job.rows} rows", flush=True)  # noqa: T201  minutes pass


def write(target: Path, settings: dict[str, Any], results: dict[str, dict[int, Any]]) -> None:
    """Figures and page of what was found so far."""
    document = {"format": 1, "settings": settings, "policies": figures(results)}
    target.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
    target.with_suffix(".md").write_text(page(document))


if __name__ == "__main__":
    main()
