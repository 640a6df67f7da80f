"""The command line: each command parses options, calls a function and shows its result."""

from __future__ import annotations

import click

from h2o_pack import __version__
from h2o_pack.cli.frame import EXIT_CODES, Commands

SECTIONS = {
    "Make a package": {
        "ios": "package",
        "update": "package",
        "verify": "check",
        "vendor": "package",
    },
    "Choose": dict.fromkeys(("plan", "models", "devices"), "plan"),
    "Try": {"chat": "chat", "bench": "measure"},
    "Check and measure": {
        "doctor": "check",
        "parity": "check",
        "eval": "measure",
        "profile": "measure",
    },
}
"""The commands of each section of the help, each with the file of this folder that has it."""


def show_version(ctx: click.Context, _option: click.Parameter, value: bool) -> None:  # noqa: FBT001
    """Print the version of h2o-pack, and the versions of the repositories that packages use."""
    if not value or ctx.resilient_parsing:
        return
    from h2o_pack.facts import pins  # facts are read when they are shown
    from h2o_py._pins import VERSIONS

    click.echo(f"h2o-pack {__version__}")
    for name, version in VERSIONS.items():
        click.echo(f"  {name} {version} (Python)")
    for pin in pins().values():
        commit = f" ({pin.commit})" if pin.commit else ""
        click.echo(f"  {pin.name} {pin.version}{commit}")
    ctx.exit()


@click.group(
    cls=Commands,
    sections=SECTIONS,
    epilog=EXIT_CODES,
    context_settings={"max_content_width": 100, "show_default": True},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=show_version,
    help="Show the version, and the versions of mlx-swift and mlx-swift-lm for packages.",
)
def main() -> None:
    """Make Swift packages of language models whose KV cache stays within a budget."""
