"""Whether a model's own files work: its tokenizer and, if it is small, a step."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from h2o_pack.architectures.model import Model
from h2o_pack.errors import Problems, in_one_line, unreadable
from h2o_pack.models.files import TOKENIZER
from h2o_pack.models.tokenizer import load_tokenizer

SMALL = 64 << 20
"""Bytes of weights up to which a model takes a step."""
TRIAL_SECONDS = 60.0
TRIAL_BYTES = 4 << 30
READ_A_TEXT = f"""
import resource, sys
from tokenizers import Tokenizer
if sys.platform == "linux":  # macOS does not keep such a limit
    resource.setrlimit(resource.RLIMIT_AS, ({TRIAL_BYTES}, {TRIAL_BYTES}))
try:
    Tokenizer.from_file(sys.argv[1]).encode("a")
except Exception:
    pass  # an ordinary error, which the caller meets too
except BaseException:
    sys.exit(3)  # a panic of the library's
"""


def try_model(model: Model, folder: Path) -> None:
    """Refuse a model that cannot read a prompt, or, if it is small, cannot take a step.

    Args:
        model: is in the folder; its headers are as its configuration asks for.
        folder: all its files.

    Raises:
        UserError: what does not work.

    """
    problems = Problems(model.id)
    with problems.caught():
        try_tokenizer(folder, model.id)
    if model.weights.bytes <= SMALL and not model.assumed:
        with problems.caught():
            try_step(folder, model.config.vocabulary, model.id)
    problems.refuse()


def try_tokenizer(folder: Path, where: str) -> None:
    """Refuse a tokenizer that cannot be loaded or makes no tokens.

    It is tried in another process first: one made to exhaust the library would end this one.
    """
    try_in_child(folder / TOKENIZER, where)
    tokenizer = load_tokenizer((folder / TOKENIZER).read_bytes(), where)
    if not tokenizer.encode("a").ids:
        raise unreadable(where, f"{TOKENIZER} makes no tokens of a text")


def try_in_child(tokenizer: Path, where: str) -> None:
    """Refuse a tokenizer with which the library panics, or takes too much memory or time."""
    try:
        child = subprocess.run(  # noqa: S603
            [sys.executable, "-c", READ_A_TEXT, str(tokenizer.resolve())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=TRIAL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        what = f"{TOKENIZER} takes more than {TRIAL_SECONDS:g} s to make tokens of one letter"
        raise unreadable(where, what) from error
    if child.returncode != 0:
        raise unreadable(where, f"the tokenizers library fails with {TOKENIZER}")


def try_step(folder: Path, vocabulary: int, where: str) -> None:
    """Refuse a model that does not give each token a logit."""
    import mlx.core as mx
    from mlx_lm.utils import load_model

    try:
        model, _ = load_model(folder, lazy=True)
        logits = model(mx.array([[0]]))
        finite = bool(mx.isfinite(logits).all())
    except Exception as error:  # whatever upstream raises
        raise unreadable(where, f"the model takes no step: {in_one_line(error)}") from error
    if logits.shape != (1, 1, vocabulary):
        raise unreadable(
            where,
            f"a step gives logits of the shape {list(logits.shape)} for {vocabulary} tokens",
        )
    if not finite:
        raise unreadable(where, "a step gives logits that are not finite numbers")
