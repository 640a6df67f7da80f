"""Which files of a model go into a package, and whether all are there that it needs."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection

from h2o_pack.errors import Problems
from h2o_pack.models.index import NAME as INDEX

CONFIG = "config.json"
WEIGHTS = "model*.safetensors"
TOKENIZER = "tokenizer.json"
NEEDED = (
    CONFIG,
    "generation_config.json",
    WEIGHTS,
    INDEX,
    TOKENIZER,
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
)
CARD = "readme.md"
NOTICES = (CARD, "license*", "licence*", "copying*", "notice*", "use_policy*")
"""What says on which terms a model may be passed on, in lower case."""


def belongs(name: str) -> bool:
    """Tell whether a file of a model repository goes into packages."""
    return inference_needs(name) or is_notice(name)


def is_notice(name: str) -> bool:
    """Tell whether a file is the model card, or the text of a license or notice."""
    return any(fnmatch.fnmatchcase(name.lower(), each) for each in NOTICES) and "/" not in name


def inference_needs(name: str) -> bool:
    """Tell whether a file of a model repository is needed to run the model."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in NEEDED) and "/" not in name


def holds_weights(name: str) -> bool:
    """Tell whether a file is one of those that mlx_lm loads weights from."""
    return fnmatch.fnmatchcase(name, WEIGHTS) and "/" not in name


def check_complete(names: Collection[str], problems: Problems) -> None:
    """Note what is missing among the files that inference needs."""
    if CONFIG not in names:
        problems.add(f"there is no {CONFIG}")
    if not any(map(holds_weights, names)):
        problems.add(f"there is no {WEIGHTS}")
    if TOKENIZER not in names:
        problems.add(f"there is no {TOKENIZER}")
