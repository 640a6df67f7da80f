"""`python -m h2o_py eval`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from h2o_pack.measure.evaluation.evaluate import Options
    from h2o_pack.measure.evaluation.run import Progress
    from h2o_pack.measure.evaluation.share import Share


def main(arguments: Sequence[str]) -> int:
    """Evaluate, and print the tables.

    Returns the exit status: 1 where a rerun does not reproduce, 2 for wrong usage.
    """
    parser = _parser()
    given = vars(parser.parse_args(arguments))
    as_json, earlier = given.pop("json"), given.pop("compare")
    from h2o_pack.measure.evaluation.share import join  # noqa: PLC0415  after --help has been served

    share = join()
    try:
        options = options_of(**given)
        found, unlike = checked(options, earlier, share, _Bars(shown=share.leads))
    except (ValueError, OSError) as error:
        parser.error(str(error))
    if share.leads:
        if as_json:
            sys.stdout.write(json.dumps(documents(found), indent=2) + "\n")
        else:
            from rich.console import Console  # noqa: PLC0415

            console = Console(highlight=False, soft_wrap=True)
            print_reports(found, console)
            print_comparison(earlier, unlike, console)
    return 1 if unlike else 0


def options_of(
    *,
    preset: str,
    output: Path | None,
    text: Path | None,
    profile: Path | None,
    layer_budgets: Path | None,
    no_pictures: bool,
    **wishes: Any,
) -> Options:
    """The run that command-line options ask for; lists are text with commas.

    Raises:
        ValueError: a value cannot be used.

    """
    from h2o_pack.measure.evaluation.evaluate import Options  # noqa: PLC0415
    from h2o_pack.measure.evaluation.loaded import ByLayer  # noqa: PLC0415
    from h2o_pack.measure.evaluation.preset import load_preset  # noqa: PLC0415

    changed = load_preset(preset).changed(
        models=_listed(wishes["model"]),
        seeds=_numbers("seeds", wishes["seeds"]),
        samples=wishes["samples"],
        lengths=_numbers("lengths", wishes["lengths"]),
        budgets=_listed(wishes["max_kv"]),
        contenders=_listed(wishes["contenders"]),
        batch=wishes["batch"],
        generate=wishes["generate"],
        experiments=_listed(wishes["experiments"]),
    )
    by_layer = ByLayer(budgets=layer_budgets, profile=profile)
    return Options(changed, text, by_layer, output, not no_pictures)


def checked(
    options: Options, earlier: Path | None, share: Share, progress: Progress
) -> tuple[list[dict[str, Any]], list[str]]:
    """Run, and say what an earlier report has otherwise.

    Raises:
        ValueError: something cannot be used; several models cannot be compared with one.
        OSError: a file cannot be read or written.

    """
    from h2o_pack.measure.evaluation import compare  # noqa: PLC0415
    from h2o_pack.measure.evaluation.evaluate import evaluate  # noqa: PLC0415

    before = None if earlier is None else compare.read(earlier)
    if before is not None and len(options.preset.models) > 1:
        raise ValueError("--compare takes the report of one model. Choose it with --model.")
    found = evaluate(options, share, progress)
    return found, [] if before is None else compare.differences(before, found[0])


def documents(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What --json prints: every model's report."""
    return {"format": 1, "reports": list(found)}


def print_reports(found: Sequence[dict[str, Any]], console: Console) -> None:
    """Show every table."""
    from h2o_pack.measure.evaluation.tables import print_report  # noqa: PLC0415

    for report in found:
        print_report(report, console)


def print_comparison(earlier: Path | None, unlike: Sequence[str], console: Console) -> None:
    """Show what an earlier report has otherwise."""
    if earlier is None:
        return
    for each in unlike:
        console.print(each, markup=False)
    verdict = "does not reproduce" if unlike else "reproduces within the intervals"
    console.print(f"{earlier} {verdict}", markup=False)


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _numbers(name: str, text: str | None) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in _listed(text))
    except ValueError:
        raise ValueError(f"{name} = {text!r} must be numbers with commas between.") from None


class _Bars:
    """rich's bar on stderr, if somebody looks at it."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown and sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        if self._shown:
            sys.stderr.write(f"{text} ...\n")

    @contextmanager
    def bar(self, text: str, total: int, unit: Any = "items") -> Iterator[Any]:  # noqa: ARG002
        if not self._shown:
            yield lambda _amount: None
            return
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import Progress as Bars  # noqa: PLC0415

        with Bars(console=Console(stderr=True), transient=True) as bars:
            task = bars.add_task(text, total=total)
            yield lambda amount: bars.advance(task, amount)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m h2o_py eval",
        description="Measure what eviction costs, beside the full cache and plain controls. "
        "Under mlx.launch the samples are split over the processes.",
    )
    add = parser.add_argument
    add("--preset", default="demo", help="A name, or a TOML file. Default: demo.")
    add("--model", help="What mlx_lm loads, or demo; several with commas. Default: preset's.")
    add("--text", type=Path, metavar="FILE", help="UTF-8 text to read. Default: preset's.")
    add("--lengths", help="Tokens of a sample, with commas. Default: preset's.")
    add("--max-kv", help="Rows, or shares such as 1/4, with commas. Default: preset's.")
    add("--contenders", help="Caches, with commas, such as default/8. Default: preset's.")
    add("--experiments", help="Which of the preset's, with commas. Default: all.")
    add("--seeds", help="With commas. Default: preset's.")
    add("--samples", type=int, help="For each seed. Default: preset's.")
    add("--batch", type=int, help="Samples read at once. Default: preset's.")
    add("--generate", type=int, help="Tokens, where speed is measured. Default: preset's.")
    add("--profile", type=Path, metavar="FILE", help="profile.json for budgets by layer.")
    add("--layer-budgets", type=Path, metavar="FILE", help="JSON of budgets by layer.")
    add("--output", type=Path, metavar="DIR", help="Folder for results, page and pictures.")
    add("--no-pictures", action="store_true", help="Draw nothing: matplotlib is not needed.")
    add("--compare", type=Path, metavar="FILE", help="results.json that this must reproduce.")
    add("--json", action="store_true", help="Print the report as JSON.")
    return parser
