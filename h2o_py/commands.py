"""The command of `python -m h2o_py`: generate."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

from h2o_py._pins import wrong_mlx

USAGE = """usage: python -m h2o_py generate [options]

mlx_lm generate with --h2o-max-size and more
(python -m h2o_py generate --help lists all options)"""


def main(arguments: Sequence[str]) -> int:
    """Run a command; returns the exit status (2: wrong usage, 6: another mlx)."""
    name = arguments[0] if arguments else ""
    if name == "generate":
        complaint = wrong_mlx()
        if complaint is not None:
            print(f"error: {complaint}", file=sys.stderr)  # noqa: T201
            return 6
        return generate(arguments[1:])
    helped = name in ("-h", "--help")
    print(USAGE, file=sys.stdout if helped else sys.stderr)
    return 0 if helped else 2


def generate(arguments: Sequence[str]) -> int:
    """`mlx_lm generate`, whose model has H2O caches when --h2o-max-size is given."""
    upstream = importlib.import_module("mlx_lm.generate")
    make_parser = upstream.setup_arg_parser
    parser = make_parser()
    _add_options(parser)
    options = parser.parse_args(arguments)
    settings = {
        "max_size": options.h2o_max_size,
        "heavy_budget": options.h2o_heavy_budget,
        "recent_budget": options.h2o_recent_budget,
        "sink_size": options.h2o_sink_size,
        "pinned": options.h2o_pinned,
    }
    settings = {name: value for name, value in settings.items() if value is not None}
    storage = {"kv": options.h2o_kv, "budgets": options.h2o_budgets}
    if not settings and storage == {"kv": None, "budgets": None}:
        return _run(upstream, arguments, _routed())
    if "max_size" not in settings:
        parser.error("--h2o-max-size is missing: how many rows may a KV head keep?")
    for name in ("max_kv_size", "kv_bits", "draft_model", "prompt_cache_file"):
        if getattr(options, name) is not None:
            flag = "--" + name.replace("_", "-")
            parser.error(f"{flag} and --h2o-max-size exclude each other; drop one.")

    from h2o_py.budgets import load_budgets  # noqa: PLC0415  after --help has been served
    from h2o_py.config import H2OConfig  # noqa: PLC0415

    with warnings.catch_warnings(record=True) as remarks:
        warnings.simplefilter("always")
        try:
            config = H2OConfig.from_dict(settings)
            if storage["budgets"] is not None:
                storage["budgets"] = load_budgets(storage["budgets"])
        except (ValueError, OSError) as error:
            parser.error(str(error))
    for remark in remarks:
        print(f"note: {remark.message}", file=sys.stderr)  # noqa: T201
    storage["kv"] = storage["kv"] or "dense"
    storage["group_size"] = options.kv_group_size
    return _run(upstream, arguments, _h2o_caches(upstream, config, storage))


def _run(upstream: Any, arguments: Sequence[str], context: Any) -> int:
    """Run mlx_lm's own main with our options known to its parser."""
    make_parser = upstream.setup_arg_parser

    def extended() -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = make_parser()
        _add_options(parser)
        return parser

    argv = ["mlx_lm.generate", *arguments]
    with (
        mock.patch.object(upstream, "setup_arg_parser", extended),
        mock.patch.object(sys, "argv", argv),
        context,
    ):
        upstream.main()
    return 0


@contextlib.contextmanager
def _routed() -> Iterator[None]:
    """Attention is routed: a prompt cache file may hold H2O caches."""
    from h2o_py.routing import routed  # noqa: PLC0415

    with routed():
        yield


@contextlib.contextmanager
def _h2o_caches(upstream: Any, config: Any, storage: dict[str, Any]) -> Iterator[None]:
    """Models that mlx_lm's command loads get H2O caches, and their attention is routed."""
    from h2o_py.models import attach_h2o_cache  # noqa: PLC0415

    load = upstream.load

    def load_with_h2o(*args: Any, **options: Any) -> Any:
        loaded = load(*args, **options)
        try:
            attach_h2o_cache(loaded[0], config, **storage)
        except ValueError as error:
            raise SystemExit(f"error: {error}") from None
        return loaded

    with _routed(), mock.patch.object(upstream, "load", load_with_h2o):
        yield


def _pinned_range(text: str) -> tuple[int, int]:
    begin, _, end = text.partition(":")
    try:
        return int(begin), int(end)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not BEGIN:END, as in 0:120") from None


def _add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("H2O cache")
    help_of = {
        "max-size": "Rows that each KV head keeps; turns the H2O cache on.",
        "heavy-budget": "Rows for heavy hitters. Default: half of the size.",
        "recent-budget": "Newest tokens, never evicted. Default: what is left.",
        "sink-size": "First tokens, never evicted. Default: 4.",
    }
    for name, text in help_of.items():
        group.add_argument(f"--h2o-{name}", type=int, default=None, help=text)
    group.add_argument(
        "--h2o-pinned",
        type=_pinned_range,
        nargs="+",
        default=None,
        metavar="BEGIN:END",
        help="Ranges of positions that are never evicted, such as 0:120.",
    )
    help_of = {
        "kv": "How rows are stored: dense (the default), 8 (bits), k8v4 (keys 8, values 4), "
        "4, r16h8 (recent tokens 16, others 8), r16h4 or r8h4.",
        "budgets": "JSON file of heavy and recent budgets that differ from layer to layer.",
    }
    for name, text in help_of.items():
        group.add_argument(f"--h2o-{name}", default=None, help=text)
