"""What a model reads and is asked, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Way = Literal[
    "asked", "wording", "second_turn", "named", "middle", "instruction", "earlier", "tool",
    "text",
]  # fmt: skip
QUESTIONS = tuple(way for way in get_args(Way) if way != "text")
"""The ways of asking that have a right answer."""


@dataclass(frozen=True)
class Outcome:
    """The result of a contender on one sample.

    metrics: by name. Text that is read token by token has these means over the tokens: nll,
    -ln p of the text's next token, in nats; kl, the KL divergence of the contender's prediction
    from the full cache's, in nats; agreement, how often both predict the same token. A
    conversation has the share of right answers by the way of asking, and text_nll and text_kl.
    """

    metrics: dict[str, float]


@dataclass(frozen=True)
class Turn:
    """A turn: a prompt and an answer.

    prompt: ids that are read as a prompt; empty for no prompt. forced: ids that the model must
    then generate, one by one. predicted: whether to score how well the model predicts `forced`.
    answer: a text that the model's following answer contains if it is right; "" to generate no
    answer.
    """

    prompt: tuple[int, ...] = ()
    forced: tuple[int, ...] = ()
    predicted: bool = False
    answer: str = ""


Asking = tuple[Turn, ...]
"""The turns that one copy of the caches reads."""
