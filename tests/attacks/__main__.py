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
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.attacks import sanitized

MOST_MEMORY = 8 << 30
"""Bytes of address space that a command may take."""


def main() -> None:
    """Read the command line, run, and exit with 1 if anything is found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, required=True, help="of the first attack")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--of", choices=("core", "commands", "app"), default="core")
    parser.add_argument("--usual", action="store_true", help="with the core as it is installed")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    if options.of == "app":
        attack_app(range(options.seed, options.seed + options.count), end)
        return
    if options.of == "commands":
        os.environ["MLX_DISABLE_COMPILE"] = "1"
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    elif not options.usual:
        if "LD_PRELOAD" not in os.environ:
            os.execve(sys.executable, sys.orig_argv, sanitized.environment())
        sanitized.load()
    run = passes if options.of == "core" else command_passes
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seed, options.seed + options.count):
            if seed > options.seed and time.monotonic() > end:
                break
            say(seed)
            if not run(seed, Path(folder)):
                raise SystemExit(1)


def say(seed: int) -> None:
    """Print a seed at once."""
    os.write(1, f"{seed}\n".encode())


def attack_app(seeds: range, end: float) -> None:
    """Run attacks on an app, batch by batch until a time, and exit with 1 at a finding."""
    from tests.attacks import app

    for seed, what in app.attacks(app.built(), seeds, end):
        say(seed)
        if what:
            os.write(2, what.encode())
            raise SystemExit(1)


def command_passes(seed: int, folder: Path) -> bool:
    """Run the attack of a seed on a command; whether it ended as documented."""
    from tests.attacks import commands

    random = Random(seed)
    attack = random.choice([commands.change_command] * 4 + [commands.change_hub])
    try:
        attack(random, folder)
    except (Exception, commands.TooLong):  # noqa: BLE001
        traceback.print_exc()
        return False
    return True


def passes(seed: int, folder: Path) -> bool:
    """Run the attack of a seed; whether it was refused, or did no harm."""
    import mlx.core as mx

    from tests.attacks import core

    of_the_binding = (ValueError, TypeError, RuntimeError, MemoryError)
    attacks: list[tuple[Callable[[Random, Path], None], tuple[type[Exception], ...]]] = [
        (core.change_call, of_the_binding),
        (core.change_state, (ValueError, MemoryError)),  # of broadcast arrays
        (core.change_other, (ValueError,)),
        (core.change_file, (ValueError,)),
        (core.change_prompt_file, (ValueError, RuntimeError)),  # MLX's, of what it cannot read
        (core.change_recall, of_the_binding),
        (core.change_folder, (ValueError,)),
    ]
    random = Random(seed)
    mx.random.seed(seed % 2**32)
    [(attack, refusals)] = random.choices(attacks, [4, 6, 1, 1, 1, 2, 1])
    try:
        attack(random, folder)
    except Exception as error:  # noqa: BLE001
        if isinstance(error, refusals) and not isinstance(error, RecursionError):
            return True
        traceback.print_exc()
        return False
    return True


if __name__ == "__main__":
    main()
