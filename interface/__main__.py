# ruff: noqa: T201 - a command prints

"""`python -m interface`: write the generated files, or with --check name the stale ones."""

from __future__ import annotations

import argparse
import sys

from interface.generate import ROOT, GeneratorError, generate
from interface.source import SourceError, read


def main(arguments: list[str]) -> int:
    """Write or check the generated files; return 1 if one is stale or a definition is wrong."""
    parser = argparse.ArgumentParser(prog="python -m interface", description=__doc__)
    parser.add_argument("--check", action="store_true", help="Write nothing; name stale files.")
    options = parser.parse_args(arguments)
    try:
        files = generate(read())
    except (SourceError, GeneratorError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    stale = [path for path, text in files.items() if _text(path) != text]
    if options.check:
        for path in stale:
            print(f"{path} is stale. Run: python -m interface", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(files[path], "utf-8")
        print(path)
    return 0


def _text(path: str) -> str | None:
    file = ROOT / path
    return file.read_text("utf-8") if file.exists() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
