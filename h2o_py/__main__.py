"""`python -m h2o_py generate`: mlx_lm's command line with H2O caches."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.metadata
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from h2o_py._pins import wrong_mlx
from h2o_py.errors import H2OError, H2OModelError
from h2o_py.policy_fields import FIELDS, RECALL_FIELDS, SCORES, Field
from h2o_py.storages import MEANINGS

USAGE = """usage: python -m h2o_py generate [options]

generate  mlx_lm generate with --max-kv and more
          (python -m h2o_py generate --help lists all options)

The other commands are h2o-pack's: h2o-pack --help."""
EXCLUDED = ("max_kv_size", "kv_bits", "draft_model", "prompt_cache_file")


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status (2: wrong usage, 6: wrong version of mlx)."""
    name = arguments[0] if arguments else ""
    if name in ("-h", "--help"):
        print(USAGE)  # noqa: T201
        return 0
    if name != "generate":
        unknown = f"error: {name!r} is not a command of h2o_py.\n" if name else ""
        print(f"{unknown}{USAGE}", file=sys.stderr)  # noqa: T201
        return 2
    complaint = wrong_mlx()
    if complaint is not None:
        print(f"error: {complaint}", file=sys.stderr)  # noqa: T201
        return 6
    return generate(arguments[1:])


def generate(arguments: Sequence[str]) -> int:
    """Run `mlx_lm generate`; with --max-kv or --kv, the model gets H2O caches."""
    upstream = importlib.import_module("mlx_lm.generate")
    whole = upstream.setup_arg_parser()
    add_options(whole)
    if {"-h", "--help"} & {*arguments}:
        whole.parse_args(["--help"])
    parser = argparse.ArgumentParser(
        prog="python -m h2o_py generate",
        usage="%(prog)s [options]; --help lists them",
        add_help=False,
        allow_abbrev=False,
    )
    add_options(parser)
    options, upstream_arguments = parser.parse_known_args(arguments)
    settings = {field.name: getattr(options, _dest(field.name)) for field in FIELDS}
    settings = {name: value for name, value in settings.items() if value is not None}
    if options.h2o_recall is None and any(_words_of_recall(options)):
        parser.error("--recall is missing: give it with the options of recall.")
    is_bounded = bool(settings) or (options.h2o_budgets, options.h2o_recall) != (None, None)
    if not is_bounded and options.h2o_kv is None:
        return _run(upstream, upstream_arguments, lambda _model: None)
    if is_bounded and "max_size" not in settings:
        parser.error("--max-kv is missing: give the number of tokens to keep.")
    upstream_parser = upstream.setup_arg_parser()
    upstream_parser.set_defaults(kv_group_size=None)  # then the heads decide
    upstream_options = upstream_parser.parse_args(upstream_arguments)
    for name in EXCLUDED:
        if getattr(upstream_options, name) is not None:
            flag = "--" + name.replace("_", "-")
            own = "--max-kv" if is_bounded else "--kv"
            parser.error(f"{flag} and {own} cannot be given together; drop one.")

    from h2o_py.budgets import load_budgets  # noqa: PLC0415  after --help has been served
    from h2o_py.config import H2OConfig, H2ORecall  # noqa: PLC0415
    from h2o_py.models import attach_h2o_cache  # noqa: PLC0415

    with warnings.catch_warnings(record=True) as remarks:
        warnings.simplefilter("always")
        try:
            if options.h2o_recall is not None:
                settings["recall"] = H2ORecall.from_words(
                    [*options.h2o_recall, *_words_of_recall(options)]
                )
            config = H2OConfig.from_dict(settings) if is_bounded else None
            budgets = options.h2o_budgets and load_budgets(options.h2o_budgets)
        except H2OError as error:
            parser.error(worded(error))
        except OSError as error:
            parser.error(str(error))
    for remark in remarks:
        print(f"note: {remark.message}", file=sys.stderr)  # noqa: T201
    storage = {
        "kv": options.h2o_kv or "16",
        "budgets": budgets,
        "group_size": upstream_options.kv_group_size,
    }
    return _run(
        upstream, upstream_arguments, lambda model: attach_h2o_cache(model, config, **storage)
    )


FLAGS = {
    **{field.name: field.flag for field in FIELDS},
    **{f"recall.{field.name}": field.flag for field in RECALL_FIELDS if field.flag},
}


def flag(field: str) -> str:
    """Return the flag of a setting; for a setting of recall, `--recall` and its key."""
    if field in FLAGS:
        return FLAGS[field]
    part, _, key = field.partition(".")
    return f"{FLAGS.get(part, f'--{part}')} {key}".rstrip()


def worded(error: H2OError) -> str:
    """Return the text of an error: settings are named by flags, or by keys if in a file."""
    return str(error) if error.where or isinstance(error, H2OModelError) else error.text(flag)


def _dest(field: str) -> str:
    return f"h2o_{field}"


def _words_of_recall(options: argparse.Namespace) -> Iterator[str]:
    """Yield the settings of recall that have options, in the words of `--recall`."""
    for field in RECALL_FIELDS:
        value = getattr(options, _dest(f"recall_{field.name}"), None)
        if value is not None:
            yield f"{field.name}={value}"


def _located(name: str) -> str:
    """Return the folder or hub id of a short name, if h2o_pack is installed and knows it."""
    for entry in importlib.metadata.entry_points(group="h2o_py", name="locate"):
        name = entry.load()(name)
    return name


def _run(upstream: Any, arguments: Sequence[str], prepare: Callable[[Any], None]) -> int:
    """Run mlx_lm's own main, which loads no code of a model; pass its model to `prepare`."""
    from h2o_py.loading import load  # noqa: PLC0415  after --help has been served
    from h2o_py.routing import routed  # noqa: PLC0415

    def load_prepared(name: str, *args: Any, **options: Any) -> Any:
        loaded = load(_located(name), *args, **options)
        prepare(loaded[0])
        return loaded

    # mlx_lm's `main` takes neither arguments nor a model, so both are patched in.
    argv = ["mlx_lm.generate", *arguments]
    with routed(), _replaced(upstream, "load", load_prepared), _replaced(sys, "argv", argv):
        try:
            upstream.main()
        # h2o_py refuses the model or its settings, or the first token cannot open the archive.
        except H2OError as error:
            raise SystemExit(f"error: {worded(error)}") from None
    return 0


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _pinned_range(text: str) -> tuple[int, int]:
    begin, _, end = text.partition(":")
    try:
        return int(begin), int(end)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not BEGIN:END, as in 0:120") from None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the cache, which are spelled as those of `h2o-pack`."""
    group = parser.add_argument_group("H2O cache")
    kinds: dict[str, dict[str, Any]] = {
        "integer": {"type": int, "metavar": "N"},
        "score": {"choices": [score.name for score in SCORES]},
        "ranges": {"type": _pinned_range, "nargs": "+", "metavar": "BEGIN:END"},
    }
    for field in FIELDS:
        group.add_argument(
            flag(field.name),
            dest=_dest(field.name),
            default=None,
            help=_help(field),
            **kinds[field.type],
        )
    text = f"How rows are stored. {MEANINGS}. Default: 16."
    group.add_argument("--kv", dest="h2o_kv", metavar="KV", help=text)
    text = "JSON file with budgets of each layer."
    group.add_argument("--budgets", dest="h2o_budgets", metavar="FILE", help=text)
    keys = "; ".join(f"{f.name}: {f.help}" for f in RECALL_FIELDS if not f.flag)
    group.add_argument(
        "--recall",
        dest="h2o_recall",
        nargs="*",
        metavar="KEY=VALUE",
        help=f"Read evicted tokens where a prompt or a generated token matches them. {keys}.",
    )
    for field in RECALL_FIELDS:
        if field.flag:
            group.add_argument(
                field.flag,
                dest=_dest(f"recall_{field.name}"),
                metavar="N",
                help=f"With --recall: {field.help}. Default: {field.default_meaning}.",
            )


def _help(field: Field) -> str:
    if field.required:
        return f"{field.help} Turns the H2O cache on."
    return f"{field.help} Default: {field.default_meaning}."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
