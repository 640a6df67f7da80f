"""Text generation with H2O caches: mlx_lm's functions with more arguments."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

import mlx_lm

from h2o_py.budgets import Budgets
from h2o_py.config import H2OConfig
from h2o_py.errors import H2OConfigError
from h2o_py.models import make_h2o_cache
from h2o_py.reply_text import lossless
from h2o_py.routing import routed

INCOMPATIBLE = {
    "draft_model": "an evicting cache cannot remove tokens, as speculative decoding requires",
    "kv_bits": "mlx_lm's own quantization has no effect on an H2O cache",
    "max_kv_size": "max_size in h2o_config already bounds the cache",
    "prompt_cache": "give either caches or the configuration of new ones",
}


def stream_generate(
    model: Any,
    tokenizer: Any,
    prompt: Any,
    *,
    h2o_config: H2OConfig | Mapping[str, Any] | None = None,
    h2o_kv: str = "16",
    h2o_budgets: Budgets | None = None,
    **options: Any,
) -> Generator[Any, None, None]:
    """`mlx_lm.stream_generate` with H2O caches when `h2o_config` or `h2o_kv` is given.

    The text of all responses together equals the text of all their tokens decoded at once.

    With H2O caches, a prompt is cut as in a package (`h2o_py.prompts`): tokens that
    `h2o_config` pins from position 0 on are read first, and the last token alone. A chunk has
    at most 512 tokens, or as many as the package of the model says; `prefill_step_size` is
    another number.

    Args:
        model: a model of mlx_lm.
        tokenizer: its tokenizer.
        prompt: text or token ids.
        h2o_config: the policy, or its fields as a mapping (`{"max_size": 512}`); None keeps
            every token.
        h2o_kv: how rows are stored, a name in `h2o_py.storages.KV_NAMES`.
        h2o_budgets: budgets that differ from layer to layer.
        options: arguments of `mlx_lm.stream_generate`; `kv_group_size` also sets the group
            size of quantized H2O rows.

    Raises:
        H2OError: the configuration is refused, or an option contradicts it.

    """
    tokenizer = lossless(tokenizer)
    if h2o_config is None and h2o_kv == "16":
        yield from mlx_lm.stream_generate(model, tokenizer, prompt, **options)
        return
    if isinstance(h2o_config, Mapping):
        h2o_config = H2OConfig.from_dict(h2o_config)
    for name, reason in INCOMPATIBLE.items():
        if options.get(name) is not None:
            raise H2OConfigError("excluded_option", option=name, reason=reason)
    options["prompt_cache"] = make_h2o_cache(
        model,
        h2o_config,
        kv=h2o_kv,
        group_size=options.get("kv_group_size"),
        budgets=h2o_budgets,
    )
    with routed():
        yield from mlx_lm.stream_generate(model, tokenizer, prompt, **options)


def generate(
    model: Any,
    tokenizer: Any,
    prompt: Any,
    *,
    verbose: bool = False,
    **options: Any,
) -> str:
    """Return the text that `stream_generate` yields; verbose: also print it as it comes."""
    parts = []
    for response in stream_generate(model, tokenizer, prompt, **options):
        parts.append(response.text)
        if verbose:
            print(response.text, end="", flush=True)  # noqa: T201  `verbose` prints the text
    if verbose:
        print()  # noqa: T201
    return "".join(parts)
