"""The command line: each command parses, calls and shows; nothing is decided here."""

from __future__ import annotations

import click

from h2o_pack import __version__
from h2o_pack.cli.frame import EXIT_CODES, Commands

SECTIONS = {
    "Commands": (
        "ios",
        "plan",
        "choose",
        "devices",
        "models",
        "update",
        "policy",
        "vendor",
        "verify",
        "parity",
        "prove",
        "doctor",
        "completion",
    ),
    "Measure a model": ("eval", "profile", "budgets", "bench"),
    "For developers of programs that read its output": ("schema",),
}
SHARED = {
    **dict.fromkeys(("ios", "update", "vendor"), "package"),
    "choose": "plan",
    **dict.fromkeys(("devices", "models", "policy", "schema", "completion"), "listings"),
}
"""The files that have several commands; any other command has a file of its name."""
MODULES = {
    name: f"h2o_pack.cli.{SHARED.get(name, name)}"
    for names in SECTIONS.values()
    for name in names
}


def show_version(ctx: click.Context, _option: click.Parameter, asked: bool) -> None:  # noqa: FBT001
    """Print the version and what it is made for."""
    if not asked or ctx.resilient_parsing:
        return
    from h2o_pack.facts import upstream_file  # facts are read when they are shown
    from h2o_py._pins import VERSIONS

    click.echo(f"h2o-pack {__version__}")
    for name, version in VERSIONS.items():
        click.echo(f"  {name} {version} (Python)")
    for pin in upstream_file().pin:
        commit = f" ({pin.commit})" if pin.commit else ""
        click.echo(f"  {pin.name} {pin.version}{commit}")
    ctx.exit()


@click.group(
    cls=Commands,
    modules=MODULES,
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
    help="Show the version and the pinned upstream versions.",
)
def main() -> None:
    """Make Swift packages of language models whose KV cache stays within a budget."""
