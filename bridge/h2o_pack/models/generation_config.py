"""generation_config.json: what a model's makers sample with, which is the app's default."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from h2o_pack.errors import Problems, shown
from h2o_pack.models.json_file import CONFIG_BYTES, parse_object

FILE = "generation_config.json"
LARGEST = CONFIG_BYTES
REMEDY = (
    "Correct it in a local copy of the model, or delete it there, and give that folder as "
    "--model."
)
EOS = "eos_token_id"


def number(value: Any, least: float, most: float = math.inf) -> bool:
    """Whether a value is a number in a range."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and least <= value <= most and math.isfinite(value)


def whole(value: Any) -> bool:
    """Whether a value is an integer."""
    return isinstance(value, int) and not isinstance(value, bool)


RANGES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "temperature": ("a number of at least 0", lambda value: number(value, 0)),
    "top_p": ("a number from 0 to 1", lambda value: number(value, 0, 1)),
    "top_k": ("an integer of at least -1", lambda value: whole(value) and value >= -1),
    "min_p": ("a number from 0 to 1", lambda value: number(value, 0, 1)),
    "repetition_penalty": (
        "a number above 0",
        lambda value: number(value, 0) and value > 0,
    ),
}
"""What a setting of sampling should be. -1 and 0 turn top_k off."""


def check(data: bytes, vocabulary: int, where: str) -> None:
    """Check what a session takes from the file.

    Args:
        data: its bytes.
        vocabulary: the model's tokens.
        where: the model, for messages.

    Raises:
        UserError: all of it that no model could be sampled with.

    """
    problems = Problems(f"{where}/{FILE}")
    document = parse_object(data, FILE, where, LARGEST)
    for name, (expected, fits) in RANGES.items():
        value = document.get(name)
        if value is not None and not fits(value):
            problems.add(f"{name} is {shown(value)}, not {expected}", REMEDY)
    given = document.get(EOS)
    ids = given if isinstance(given, list) else [] if given is None else [given]
    wrong = [each for each in ids if not whole(each) or not 0 <= each < vocabulary]
    if wrong:
        problems.add(
            f"{EOS} has {shown(wrong[0])}, which is none of the {vocabulary} tokens", REMEDY
        )
    problems.refuse()
