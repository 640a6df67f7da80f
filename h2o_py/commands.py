"""The commands of `python -m h2o_py`."""

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

generate  mlx_lm generate with --h2o-max-size, --h2o-heavy-budget, --h2o-recent-budget
          and --h2o-sink-size (python -m h2o_py generate --help lists all options)"""


def main(arguments: Sequence[str]) -> int:
    """Run a command; returns the exit status (2: wrong usage, 6: another mlx)."""
    if list(arguments[:1]) == ["generate"]:
        complaint = wrong_mlx()
        if complaint is not None:
            print(f"error: {complaint}", file=sys.stderr)  # noqa: T201
            return 6
        return generate(arguments[1:])
    helped = list(arguments[:1]) in (["-h"], ["--help"])
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
    }
    settings = {name: value for name, value in settings.items() if value is not None}
    if not settings:
        plain = contextlib.nullcontext()
        return _run(upstream, arguments, plain)
    if "max_size" not in settings:
        parser.error("--h2o-max-size is missing: how many rows may a KV head keep?")
    for name in ("max_kv_size", "kv_bits", "draft_model"):
        if getattr(options, name) is not None:
            flag = "--" + name.replace("_", "-")
            parser.error(f"{flag} and --h2o-max-size exclude each other; drop one.")

    from h2o_py.config import H2OConfig  # noqa: PLC0415  after --help has been served

    with warnings.catch_warnings(record=True) as remarks:
        warnings.simplefilter("always")
        try:
            config = H2OConfig.from_dict(settings)
        except ValueError as error:
            parser.error(str(error))
    for remark in remarks:
        print(f"note: {remark.message}", file=sys.stderr)  # noqa: T201
    return _run(upstream, arguments, _h2o_caches(upstream, config))


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
def _h2o_caches(upstream: Any, config: Any) -> Iterator[None]:
    """Models that mlx_lm's command loads get H2O caches, and their attention is routed."""
    from h2o_py.models import attach_h2o_cache  # noqa: PLC0415
    from h2o_py.routing import install_routing, remove_routing  # noqa: PLC0415

    load = upstream.load

    def load_with_h2o(*args: Any, **options: Any) -> Any:
        loaded = load(*args, **options)
        attach_h2o_cache(loaded[0], config)
        return loaded

    install_routing()
    try:
        with mock.patch.object(upstream, "load", load_with_h2o):
            yield
    finally:
        remove_routing()


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
