"""Long and interrupted conversations, by hand; `--write` writes docs/results/peers.md.

python -m tests.conversations [PACKAGE] --write

Without a package, one of the demo model is made and built on the stand-in, whose model has
no weights. A package with a Vendor/ folder is run with its own model.
"""

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from docs.docgen.markdown import replaced, table
from h2o_pack.cli import main as cli
from h2o_pack.measure.machine import describe
from tests.conversations.program import LONG, Kills, build, kill

# glibc keeps an arena per thread, and with it pages that the thread has freed.
ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}
TURN = {"seen": "tokens so far", "active": "MLX's arrays, bytes"}
"""What is shown of a turn, by its name in the report."""
PAGE = Path(__file__).parents[2] / "docs/results/peers.md"
MARK = "the demo model"


def main() -> None:
    """Run, print, and write the page if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", type=Path, nargs="?", help="Made by h2o-pack ios.")
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--tokens", type=int, default=2000, help="Of each prompt.")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--write", action="store_true", help=f"Write {PAGE.name}.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        package = options.package or demo(folder / "Demo")
        vendored = (package / "Vendor").is_dir()
        if options.write and not vendored:
            parser.error("--write needs a package with Vendor/, whose model has weights")
        settings = {"H2O_CONVERSATION_MODEL": "bundled"} if vendored else {}
        program = build(package, settings)
        size = {
            "H2O_CONVERSATION_TURNS": str(options.turns),
            "H2O_CONVERSATION_TOKENS": str(options.tokens),
        }
        long = replace(program, settings={**settings, **size, **ONE_ARENA})
        long.run(LONG, folder / "long")
        report = json.loads((folder / "long/long-conversation.json").read_text("utf-8"))
        kills = kill(program, options.kills, options.seed, folder / "kills")
        text = long_conversation(report, program.host.name) + interrupted(kills, options.seed)
    print(text)  # noqa: T201
    if options.write:
        PAGE.write_text(replaced(PAGE.read_text("utf-8"), MARK, text), "utf-8")


def long_conversation(report: dict[str, Any], host: str) -> str:
    """Say what the turns took, and what a change of an earlier turn read again.

    report: what LongConversationTests wrote. host: the libraries and where they ran.
    """
    machine, turns = describe(), report["turns"]
    growths = [turn["resident"] - turn["text"] for turn in turns[4:]]
    turns_to_show = {1, 2, 5, *range(10, len(turns) + 1, 10), len(turns)}
    numbers = sorted(number for number in turns_to_show if number <= len(turns))
    rows = [
        (
            number,
            *(f"{turns[number - 1][name]:,}" for name in TURN),
            f"{turns[number - 1]['resident'] / 1e6:.1f}",
        )
        for number in numbers
    ]
    follows = turns[-1]["seen"] - report["cached"]
    sizes = ", ".join(f"{count:,}" for count in report["snapshots"])
    return (
        f"On {host}; {machine.processor}, {machine.cores} cores.\n\n"
        f"**{len(turns)} turns, {turns[-1]['seen']:,} tokens,** with prompts of "
        f"{turns[-1]['new']:,}. After turn 5 the memory of the "
        f"process grows by {100 * (max(growths) / growths[0] - 1):.2f}%, without freed memory "
        f"and without the text of the messages, {turns[-1]['text']:,} bytes, which the app "
        f"keeps.\n\n{table(('turn', *TURN.values(), 'process, MB'), rows)}\n\n"
        f"Then turn {report['changed']} was edited. {len(report['snapshots'])} snapshots were "
        f"left, after {sizes} tokens. The next reply continued from the snapshot after "
        f"{report['cached']:,} tokens and read {report['read']:,} tokens: its prompt, and "
        f"again the {follows:,} tokens after the snapshot.\n\n"
    )


def interrupted(kills: Kills, seed: int) -> str:
    """Say how the kills ended."""
    count = len(kills.kills)
    resumed = sum(kill.resumed_whole for kill in kills.kills)
    saving = sum(kill.after.startswith("replied") for kill in kills.kills)
    same = "equal" if kills.same else "DO NOT equal"
    return (
        f"**{count} kills.** A conversation that is saved after each turn was killed "
        f"(`kill -9`) at {count} random moments (seed {seed}), {saving} of them during a save. "
        f"{resumed} times it resumed from its last complete turn. Its replies {same} the "
        "replies of a conversation that was not interrupted."
    )


def demo(folder: Path) -> Path:
    """Make a package of the bundled demo model."""
    arguments = ["ios", "--model", "demo", "--max-kv", "64", "--no-vendor", "--output"]
    result = CliRunner().invoke(cli, [*arguments, str(folder)])
    if result.exit_code:
        raise RuntimeError(result.output)
    return folder


if __name__ == "__main__":
    main()
