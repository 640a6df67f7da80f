"""The model's folder as mlx-lm reads it, and the 4-bit variant of it."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from h2o_pack.files.text import json_by_lines
from studies.tiny_lm.corpus import END_OF_TEXT
from studies.tiny_lm.recipe import Architecture, Recipe

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer

PROGRAM = (  # the files that decide the weights
    "corpus.py",
    "vocabulary.py",
    "recipe.py",
    "samples.py",
    "quantization.py",
    "model.py",
    "muon.py",
    "training.py",
)

TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


def write_model(
    folder: Path,
    weights: Mapping[str, torch.Tensor],
    shape: Architecture,
    tokenizer: Tokenizer,
) -> None:
    """Write the folder; weights are rounded to bfloat16."""
    from safetensors.torch import save_file  # tests have no torch

    folder.mkdir(parents=True, exist_ok=True)
    rounded = {name: weight.detach().bfloat16() for name, weight in weights.items()}
    save_file(rounded, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    write_json(folder / "config.json", shape.config())
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": END_OF_TEXT,
            "model_max_length": shape.context,
            "clean_up_tokenization_spaces": False,
        },
    )


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


def write_json(path: Path, document: object) -> None:
    """Write a document for people and programs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json_by_lines(document, depth=2), encoding="utf-8")


def sha256(path: Path) -> str:
    """Hash a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def program_sha256() -> str:
    """Hash the code that decides the weights: names and texts of its files."""
    digest = hashlib.sha256()
    for name in PROGRAM:
        digest.update(name.encode() + b"\0" + Path(__file__).with_name(name).read_bytes())
    return digest.hexdigest()
