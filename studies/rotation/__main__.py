"""Compare rotated rows with plain ones: python -m studies.rotation."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from h2o_pack.hub.resolve import resolve
from h2o_pack.measure.evaluation import lockstep
from h2o_pack.measure.evaluation.loaded import load_for_evaluation
from h2o_pack.measure.evaluation.samples import Shape, make_sample
from h2o_py.routing import routed
from studies.rotation.page import figures, page
from studies.rotation.tried import FULL, Factory, Tried, levels

DEPTHS = (0.1, 0.2, 0.4, 0.6, 0.75)
DECOYS = tuple((i + 0.5) / 12 for i in range(12))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all caches, and write figures and page."""
    parser = argparse.ArgumentParser(prog="python -m studies.rotation", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("docs/results/rotation"))
    parser.add_argument("--length", type=int, default=1024, help="Tokens of a sample.")
    parser.add_argument("--seeds", default="1,2,3", help="With commas; a batch each.")
    parser.add_argument("--samples", type=int, default=8, help="For each seed.")
    options = parser.parse_args(arguments)
    loaded, config = load_for_evaluation("demo"), resolve("demo").config
    compared = levels(config, options.length)
    contenders = [FULL, *dict.fromkeys(each for level in compared for each in level.tried)]
    found: dict[Tried, list[lockstep.Outcome]] = {each: [] for each in contenders}
    factory = Factory(loaded.model, config.head_dim)
    for seed in map(int, options.seeds.split(",")):
        shapes = [Shape(options.length, (depth, *DECOYS), (0,)) for depth in DEPTHS]
        samples = [
            make_sample(loaded.tokens, loaded.words, shapes[n % len(shapes)], seed, n)
            for n in range(options.samples)
        ]
        with routed():
            ran = lockstep.run(
                loaded.model, factory, loaded.tokens, samples, contenders, in_turns=False
            )
        for each, outcomes in zip(contenders, ran, strict=True):
            found[each] += outcomes
        print(f"seed {seed}", flush=True)  # noqa: T201  minutes pass
    count = len(found[FULL])
    settings = {"count": count, "length": options.length, "seeds": options.seeds}
    document = {"format": 1, "settings": settings, "levels": figures(compared, found)}
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "results.json").write_text(json.dumps(document, indent=1) + "\n")
    (options.output / "README.md").write_text(page(document))


if __name__ == "__main__":
    main()
