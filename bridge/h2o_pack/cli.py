"""The command line: parses, calls, prints, and maps errors to exit codes."""

# ruff: noqa: PLC0415 - imports inside functions keep `h2o-pack --help` quick

from __future__ import annotations

import errno
import sys
import traceback
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from h2o_pack import __version__
from h2o_pack.cache import cache_folder
from h2o_pack.cli_kernels import kernels
from h2o_pack.errors import MEANINGS, ExitCode, UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from h2o_pack.plan import CacheOptions
    from h2o_pack.progress import Say

EXIT_CODES = "\b\nExit codes:\n" + "\n".join(
    f"  {code.value:>3}  {meaning}" for code, meaning in MEANINGS.items()
)


class Commands(click.Group):
    """A group whose commands end with documented exit codes and no traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; print a UserError as one message."""
        try:
            return super().invoke(ctx)
        except UserError as error:
            click.echo(f"error: {error}", err=True)
            ctx.exit(error.code)
        except KeyboardInterrupt:
            click.echo("interrupted; run the command again to finish", err=True)
            ctx.exit(ExitCode.INTERRUPTED)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise
            traceback.print_exc()
            click.echo("This is an error in h2o-pack itself; please report it.", err=True)
            ctx.exit(ExitCode.INTERNAL)


class PinnedRange(click.ParamType):  # type: ignore[type-arg]
    """A half-open range of positions, written A:B."""

    name = "A:B"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, int]:
        """Read "A:B" as (A, B)."""
        begin, colon, end = str(value).partition(":")
        if not (colon and begin.isdecimal() and end.isdecimal() and int(begin) < int(end)):
            self.fail(f"{value!r} is not a range of positions such as 0:128", param, ctx)
        return int(begin), int(end)


@click.group(cls=Commands, epilog=EXIT_CODES, context_settings={"max_content_width": 100})
@click.version_option(__version__, prog_name="h2o-pack")
def main() -> None:
    """Make Swift packages of language models whose KV cache stays within a budget."""


@main.command(epilog="Example: h2o-pack ios --model demo --max-kv 64 --output build/Demo")
@click.option("--model", required=True, help="Alias, folder, or id on huggingface.co.")
@click.option("--max-kv", required=True, type=int, help="Tokens each layer's cache keeps.")
@click.option("--output", type=click.Path(path_type=Path), help="Folder. [default: NAME]")
@click.option("--name", help="Name of the package. [default: from the model]")
@click.option("--sink-size", type=int, help="First tokens that always stay. [default: 4]")
@click.option("--heavy-budget", type=int, help="Tokens for heavy hitters. [default: half]")
@click.option("--recent-budget", type=int, help="Newest tokens that stay. [default: the rest]")
@click.option(
    "--score",
    type=click.Choice(["peak", "softmax", "abs_logit"]),
    help="What of the attention is scored. [default: peak]",
)
@click.option("--decay", type=float, help="Factor of a score per query. [default: by --score]")
@click.option("--novelty", type=float, help="Weight of a key's novelty. [default: 2]")
@click.option("--pin", type=PinnedRange(), multiple=True, help="Positions that always stay.")
@click.option("--observation-window", type=int, help="Queries of a chunk that score.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def ios(
    *,
    model: str,
    output: Path | None,
    name: str | None,
    as_json: bool,
    pin: tuple[tuple[int, int], ...],
    **options: Any,
) -> None:
    """Make a Swift package with a model and its H2O cache."""
    from h2o_pack import summary
    from h2o_pack.models.resolve import resolve
    from h2o_pack.package import make_package
    from h2o_pack.plan import CacheOptions, make_plan

    chosen: CacheOptions = CacheOptions(pinned=pin, **options)
    plan = make_plan(resolve(model), chosen, name)
    with progress() as say:
        say(f"writing {plan.package_name}")
        package = make_package(plan, output or Path(plan.package_name))
    if as_json:
        click.echo(summary.package_json(plan, package))
    else:
        summary.print_package(plan, package, console())


@main.command(epilog="Example: h2o-pack vendor build/Demo --host linux")
@click.argument("package", type=click.Path(path_type=Path))
@click.option(
    "--upstream",
    type=click.Path(path_type=Path),
    help="Folder with clones of your own: nothing is fetched.",
)
@click.option(
    "--mirror",
    metavar="URL",
    default="",
    envvar="H2O_PACK_MIRROR",
    show_envvar=True,
    help="Fetch from URL/OWNER/NAME instead of https://github.com/OWNER/NAME.",
)
@click.option(
    "--cache",
    type=click.Path(path_type=Path),
    default=cache_folder,
    help="Folder that keeps what was fetched. [default: $H2O_PACK_CACHE, or the user's cache]",
)
@click.option(
    "--host",
    type=click.Choice(["apple", "linux"]),
    default="apple",
    show_default=True,
    help="Where the package will be built.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print errors only, and what --json asks.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def vendor(
    *,
    package: Path,
    upstream: Path | None,
    mirror: str,
    cache: Path,
    host: str,
    quiet: bool,
    as_json: bool,
) -> None:
    """Put upstream's sources, edited, into PACKAGE's Vendor folder.

    They are fetched with git at the commits that h2o-pack is made for, once.
    """
    from h2o_pack import summary
    from h2o_pack.vendoring.fetch import Origin
    from h2o_pack.vendoring.vendor import vendor as fill

    with progress(quiet=quiet, log=not as_json) as say:
        vendored = fill(package, upstream or Origin(cache, mirror), host, say)
    if as_json:
        click.echo(summary.vendored_json(package, vendored))
    elif not quiet:
        summary.print_vendored(package, vendored, console())


@main.command(epilog="Example: h2o-pack parity build/Demo")
@click.argument("package", type=click.Path(path_type=Path))
@click.option(
    "--level",
    "levels",
    type=click.Choice(["op", "trace", "tokens", "all"]),
    multiple=True,
    help="Check this level only; may be given again. tokens needs PACKAGE/Vendor. "
    "[default: op and trace]",
)
@click.option("--require-swift", is_flag=True, help="Exit with 5 where there is no Swift.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def parity(
    *, package: Path, levels: tuple[str, ...], require_swift: bool, as_json: bool
) -> None:
    """Check that PACKAGE does in Swift what mlx-lm does in Python."""
    from h2o_pack.parity.parity import DEFAULT, LEVELS, run_parity
    from h2o_pack.parity.report import print_report

    with progress() as say:
        report = run_parity(
            package,
            levels=tuple(LEVELS) if "all" in levels else levels or DEFAULT,
            require_swift=require_swift,
            progress=say,
        )
    if as_json:
        click.echo(report.to_json())
    else:
        print_report(report, console())
    if report.differs:
        sys.exit(ExitCode.DIFFERENT)


@main.command(epilog="Example: h2o-pack bench --quick")
@click.option("--heads", type=int, default=32, show_default=True, help="Query heads.")
@click.option("--kv-heads", type=int, default=8, show_default=True, help="KV heads.")
@click.option("--head-dim", type=int, default=128, show_default=True, help="Size of a key.")
@click.option("--capacity", type=int, default=512, show_default=True, help="Rows kept.")
@click.option(
    "--dtype",
    default="float16,bfloat16,float32",
    show_default=True,
    help="One or more, with commas.",
)
@click.option("--model", default="demo", show_default=True, help="What mlx_lm loads, or demo.")
@click.option("--tokens", type=int, default=256, show_default=True, help="To generate.")
@click.option("--quick", is_flag=True, help="A run of less than a minute.")
@click.option("--plot", type=click.Path(path_type=Path), help="PNG to draw the report in.")
@click.option("--write", type=click.Path(path_type=Path), help="Page to write the report to.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def bench(
    *, dtype: str, plot: Path | None, write: Path | None, as_json: bool, **options: Any
) -> None:
    """Measure H2O caches beside mlx-lm's on this machine."""
    from h2o_py.bench.command import measure
    from h2o_py.bench.options import Options
    from h2o_py.bench.tables import print_report

    try:
        chosen = Options(dtypes=tuple(dtype.split(",")), **options)
        with progress() as say:
            report = measure(chosen, plot=plot, write=write, progress=say)
    except ValueError as error:
        what, _, remedy = str(error).partition(". ")
        remedy = remedy or "See `h2o-pack bench --help`."
        raise UserError(what.rstrip("."), remedy=remedy, code=ExitCode.USAGE) from error
    if as_json:
        click.echo(report.to_json())
    else:
        print_report(report, console())


main.add_command(kernels)


def console() -> Any:
    """Return where results for people go."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True)


@contextmanager
def progress(*, quiet: bool = False, log: bool = False) -> Iterator[Say]:
    """Show what is being done on one line, if somebody looks at it.

    What is done stays on lines of its own, with `log` also where nobody looks.
    """
    from rich.console import Console
    from rich.markup import escape

    from h2o_pack.progress import silent

    screen = Console(stderr=True, highlight=False, soft_wrap=True)
    if quiet or not (screen.is_terminal or log):
        yield silent
        return

    def tell(text: str, *, done: bool = False) -> None:
        if done:
            screen.print(text, markup=False)
        elif screen.is_terminal:
            status.update(escape(text[: max(20, screen.width - 4)]))

    status = screen.status("")
    with status if screen.is_terminal else nullcontext():
        yield tell
