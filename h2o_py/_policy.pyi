from typing import Any

# What belongs to an error or a warning, by its code.
_Problem = tuple[str, dict[str, Any]]

class PolicyError(ValueError):
    args: _Problem

# Each takes settings by their names. What is none or left out has its default.
def complete(
    policy: dict[str, Any], recall: dict[str, Any] | None = None
) -> tuple[dict[str, Any], int, list[_Problem]]: ...  # defaults, rows of a recall, warnings
def check(name: str, value: Any) -> None: ...  # of one setting
def check_recall(recall: dict[str, Any]) -> None: ...
def defaults_of(policy: str, settings: dict[str, Any]) -> dict[str, Any]: ...
