"""The documentation's sources."""

from tests.processes import ROOT

SOURCES = {
    path.relative_to(ROOT / "docs").as_posix(): path.read_text("utf-8")
    for path in sorted((ROOT / "docs").rglob("*.md"))
}
