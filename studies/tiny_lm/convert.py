"""The 4-bit variant, made as any user would make it."""

from __future__ import annotations

import shutil
from pathlib import Path

from studies.tiny_lm.recipe import Recipe

TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


def convert(model: Path, variant: Path) -> None:
    """Quantize `model` by mlx_lm.convert, tied embedding included, into a new folder."""
    from mlx_lm import convert as quantize  # slow to import

    shutil.rmtree(variant, ignore_errors=True)
    recipe = Recipe()
    quantize(
        str(model),
        str(variant),
        quantize=True,
        q_group_size=recipe.group_size,
        q_bits=recipe.bits,
    )
    for name in TOKENIZER:  # transformers rewrites them in its own words
        shutil.copyfile(model / name, variant / name)
    for leftover in (variant / "README.md", variant / ".gitattributes"):
        leftover.unlink(missing_ok=True)
