"""`python -m studies.tiny_lm`: everything from the text to the model and its card.

python -m studies.tiny_lm                    all parts, into the repository
python -m studies.tiny_lm --part measure     one part of it again
python -m studies.tiny_lm --shorten 10 --models /tmp/try --records /tmp/try
"""

from __future__ import annotations

import argparse
from pathlib import Path

PARTS = ("train", "convert", "measure", "card")
ROOT = Path(__file__).parents[2]
MODELS = ROOT / "bridge" / "h2o_pack" / "models"
RECORDS = ROOT / "docs" / "results" / "tiny-lm"


def main() -> None:
    """Run the parts that were asked for, in order."""
    parser = argparse.ArgumentParser(prog="python -m studies.tiny_lm", description=__doc__)
    parser.add_argument("--part", action="append", choices=PARTS, help="default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=3)
    parser.add_argument("--shorten", type=float, default=1.0, help="train on 1/N of the tokens")
    parser.add_argument("--models", type=Path, default=MODELS, help="where demo/ goes")
    parser.add_argument("--records", type=Path, default=RECORDS, help="where results go")
    options = parser.parse_args()
    parts = options.part or PARTS
    model, small = options.models / "demo", options.models / "demo-4bit"
    if "train" in parts:
        from studies.tiny_lm.recipe import Recipe  # torch takes seconds
        from studies.tiny_lm.train import train

        recipe = Recipe(seed=options.seed)
        if options.shorten != 1:
            recipe = recipe.shortened(options.shorten)
        train(model, options.records, recipe, options.threads, say)
    if "convert" in parts:
        from studies.tiny_lm.files import convert

        convert(model, small)
    if "measure" in parts:
        from studies.tiny_lm.measure import measure

        measure(model, small, options.records, options.threads, say)
    if "card" in parts:
        from studies.tiny_lm.card import write_cards

        write_cards(model, small, options.records)


def say(line: str) -> None:
    """Print a line of progress at once."""
    print(line, flush=True)  # noqa: T201 - this is a program for a terminal


if __name__ == "__main__":
    main()
