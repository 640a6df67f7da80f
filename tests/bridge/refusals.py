"""What a call is refused with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from h2o_pack.errors import ExitCode, UserError


def refused(
    work: Callable[..., object], *arguments: Any, code: ExitCode, **options: Any
) -> str:
    """Call something that ends with a UserError of this code; return what it says."""
    with pytest.raises(UserError) as caught:
        work(*arguments, **options)
    assert caught.value.code == code
    return str(caught.value)
