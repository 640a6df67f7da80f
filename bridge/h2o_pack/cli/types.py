"""Values of options that are more than a string or a number."""

from __future__ import annotations

from typing import Any

import click

from h2o_py.policy_fields import NAMED_POLICIES
from h2o_py.storages import STORAGE_BITS, SYNONYMS

POLICIES = tuple(policy.name for policy in NAMED_POLICIES)
KV = (*STORAGE_BITS, *SYNONYMS)


class PinnedRange(click.ParamType):  # type: ignore[type-arg]
    """A half-open range of positions, written A:B."""

    name = "A:B"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, int]:
        """Read "A:B" as (A, B)."""
        begin, colon, end = str(value).partition(":")
        if not (colon and begin.isdecimal() and end.isdecimal() and int(begin) < int(end)):
            self.fail(f"{value!r} is not a range of positions such as 0:128", param, ctx)
        return int(begin), int(end)
