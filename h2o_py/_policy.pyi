from typing import Any

# The code of an error or a warning, and its values by name.
_Problem = tuple[str, dict[str, Any]]

class PolicyError(ValueError):
    args: _Problem

# Each function takes settings by name. A setting that is None or missing gets its default.
def complete(
    policy: dict[str, Any], recall: dict[str, Any] | None = None
) -> tuple[dict[str, Any], list[_Problem]]: ...  # defaults, warnings
def check(name: str, value: Any) -> None: ...  # checks one setting
def check_recall(recall: dict[str, Any]) -> None: ...
