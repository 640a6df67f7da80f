"""Long and interrupted conversations, by hand; `--write` writes docs/results/conversations.md.

python -m tests.conversations [PACKAGE] --write

Without a package, one of the demo model is made and built on the stand-in, whose model has
no weights. A package with a Vendor/ folder is run with its own model.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner

from h2o_pack.cli import main as cli
from tests.conversations.kills import kill
from tests.conversations.page import part, with_part
from tests.conversations.program import LONG, build

# glibc keeps an arena per thread, and with it pages that the thread has freed.
ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}
PAGE = Path(__file__).parents[2] / "docs/results/conversations.md"


def main() -> None:
    """Run, print, and write the page if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", type=Path, nargs="?", help="Made by h2o-pack ios.")
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--tokens", type=int, default=2000, help="Of each prompt.")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument(
        "--write",
        type=Path,
        nargs="?",
        const=PAGE,
        help=f"Page to write to, else {PAGE.name}.",
    )
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        package = chosen.package or demo(folder / "Demo")
        vendored = (package / "Vendor").is_dir()
        settings = {"H2O_CONVERSATION_MODEL": "bundled"} if vendored else {}
        program = build(package, settings)
        size = {
            "H2O_CONVERSATION_TURNS": str(chosen.turns),
            "H2O_CONVERSATION_TOKENS": str(chosen.tokens),
        }
        long = replace(program, settings={**settings, **size, **ONE_ARENA})
        long.run(LONG, folder / "long")
        report = json.loads((folder / "long/long-conversation.json").read_text("utf-8"))
        kills = kill(program, chosen.kills, chosen.seed, folder / "kills")
        model = "the demo model" if vendored else "a model of two layers without weights"
        text = part(report, kills, model, program.host.name, chosen.seed)
    print(text)  # noqa: T201
    if chosen.write:
        page = chosen.write.read_text("utf-8") if chosen.write.exists() else ""
        chosen.write.write_text(with_part(page, text), encoding="utf-8")


def demo(folder: Path) -> Path:
    """Make a package of the bundled demo model."""
    arguments = ["ios", "--model", "demo", "--max-kv", "64", "--no-vendor", "--output"]
    result = CliRunner().invoke(cli, [*arguments, str(folder)])
    if result.exit_code:
        raise RuntimeError(result.output)
    return folder


if __name__ == "__main__":
    main()
