"""The `update` command."""

from __future__ import annotations

from pathlib import Path

import click

from h2o_pack.cli.frame import command
from h2o_pack.cli.ios import end
from h2o_pack.cli.options import origin_options
from h2o_pack.cli.terminal import Terminal
from h2o_pack.cli.types import PATH


@command(example="h2o-pack update build/Demo --dry-run")
@click.argument("package", type=PATH)
@origin_options
@click.option(
    "--app",
    is_flag=True,
    help="Write the app's newest scaffold to App.new; your App is never changed.",
)
@click.option("--dry-run", is_flag=True, help="Say what would change; write nothing.")
def update(
    *,
    package: Path,
    upstream: Path | None,
    mirror: str,
    cache: Path,
    app: bool,
    dry_run: bool,
    out: Terminal,
) -> None:
    """Make PACKAGE again with the options that it was made with.

    Says first what changes: the tool, the model's commit, upstream, settings, files. App and
    files of your own stay.
    """
    from h2o_pack.package import summary
    from h2o_pack.package.update import UpdateResult, planned, print_changes, print_update
    from h2o_pack.vendoring.fetch import Origin

    origin = upstream or Origin(cache, mirror)
    made = None
    with out.progress() as say, planned(package, origin, say, new_app=app) as found:
        out.tell(lambda console: print_changes(found, console, dry_run=dry_run))
        if not dry_run and found.needed:
            made = found.make(say)
    told = None if made is None else summary.ios_result(made)
    result = UpdateResult(package=found.package, changes=found.changes, made=told)
    out.show(result, lambda console: print_update(made, console))
    if made is not None:
        end(made)
