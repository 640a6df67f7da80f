"""The documentation's sources."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {
    path.relative_to(ROOT / "docs").as_posix(): path.read_text("utf-8")
    for path in sorted((ROOT / "docs").rglob("*.md"))
}
