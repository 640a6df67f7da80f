"""Attacks on the core and on all that reads files: `make fuzz` runs them without end.

An attack changes what a cache saves, a file, the arguments of a call, what a command is given
or what a hub answers, at random from a seed, and then uses whatever is taken. It may be refused
with an error of ours; anything else is a finding: another exception, a command that takes too
long, or a process that AddressSanitizer or UndefinedBehaviorSanitizer ends.
"""

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple


class Attack(NamedTuple):
    """An attack: what it does, how often, and the errors that refuse it."""

    change: Callable[[Random, Path], None]
    weight: int
    refusals: tuple[type[Exception], ...] = ()


class TooLongError(BaseException):
    """A command does not end."""


def passes(attacks: Sequence[Attack], seed: int, folder: Path) -> bool:
    """Run the attack of a seed; whether it was refused, or did no harm."""
    import mlx.core as mx  # a core with sanitizers is loaded first

    random = Random(seed)
    mx.random.seed(seed % 2**32)
    [attack] = random.choices(attacks, [attack.weight for attack in attacks])
    try:
        attack.change(random, folder)
    except (Exception, TooLongError) as error:  # noqa: BLE001
        if isinstance(error, attack.refusals) and not isinstance(error, RecursionError):
            return True
        traceback.print_exc()
        return False
    return True
