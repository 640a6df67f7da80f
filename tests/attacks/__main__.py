"""Runs attacks by their seeds: `python -m tests.attacks --seed 7 --count 1`.

Prints each seed before its attack, so that one which ends the process is known, and stops at
the first one that finds something.
"""

import argparse
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

from tests.attacks import passes, sanitized

MOST_MEMORY = 8 << 30
"""Bytes of address space that a command may take."""


def main() -> None:
    """Read the command line, run, and exit with 1 if anything is found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, required=True, help="of the first attack")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--of", choices=("core", "commands", "app"), default="core")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    seeds = range(options.seed, options.seed + options.count)
    if options.of == "app":
        from tests.attacks import app

        for seed, what in app.attacks(app.built(), seeds, end):
            say(seed)
            if what:
                sys.exit(what)
        return
    if options.of == "commands":
        os.environ["MLX_DISABLE_COMPILE"] = "1"
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
        from tests.attacks.commands import ATTACKS
    else:
        if "LD_PRELOAD" not in os.environ:
            os.execve(sys.executable, sys.orig_argv, sanitized.environment())
        sanitized.load()
        from tests.attacks.core import ATTACKS
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            if seed > options.seed and time.monotonic() > end:
                break
            say(seed)
            if not passes(ATTACKS, seed, Path(folder)):
                sys.exit(1)


def say(seed: int) -> None:
    """Print a seed at once."""
    os.write(1, f"{seed}\n".encode())


if __name__ == "__main__":
    main()
