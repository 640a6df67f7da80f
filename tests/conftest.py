"""Fixtures that tests of several folders use."""

from __future__ import annotations

from tests.hub.fixture import hub

__all__ = ["hub"]
