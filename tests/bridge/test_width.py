"""What commands show people fits a terminal of 80 columns."""

import io
import re
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from h2o_pack.cli import main
from h2o_pack.measure.tables import Table, print_table
from h2o_pack.parity import parity_report as parity
from tests.bridge.parity.test_report import REPORT

WIDTH = 80
PASTED = "equivalent options: "  # a line break would be pasted too
PHONE = ("--device", "iPhone 15")
LARGE = ("--model", "Qwen3-4B-4bit")
OLD = ("--device", "iPhone 12")
PLAIN = ("--model", "demo", "--max-kv", "64")
SHOWN = [
    ("--help",),
    ("plan", *PHONE, "--context", "16384"),
    ("devices",),
    ("devices", "iPhone 15"),
    ("models",),
    ("plan", *PLAIN),
    ("plan", *PLAIN, *PHONE, "--recall", "--recall-reach", "4"),
    ("plan", *LARGE, "--max-kv", "512", "--kv", "k8v4", *OLD),
    ("plan", *LARGE, "--model", "Qwen3-0.6B-4bit", "--max-kv", "512", *PHONE, *OLD),
]


def too_wide(text: str) -> list[str]:
    """Return the lines that a terminal would break."""
    lines = (line for line in text.splitlines() if not line.startswith(PASTED))
    return [line for line in lines if cell_len(line.rstrip()) > WIDTH]


@pytest.mark.parametrize("command", SHOWN, ids=" ".join)
def test_the_output_of_a_command_fits(run, command):
    result = run(*command)
    assert result.stdout
    assert too_wide(result.stdout) == []
    assert "\u2026" not in result.stdout
    assert "...\n" not in result.stdout.partition("\n")[2]


def test_the_output_of_commands_on_packages_fits(run, tmp_path):
    package = tmp_path / "Demo"
    result = run("ios", *PLAIN, "--no-vendor", "--output", package)
    assert too_wide(result.stdout.replace(str(package), "Demo")) == []
    for command in (("verify", package), ("update", package, "--dry-run")):
        assert too_wide(run(*command).stdout.replace(str(package), "Demo")) == []


def test_a_report_on_several_models_fits_and_is_not_cut():
    names = ("mlx-community/Qwen3-4B-Instruct-2507-4bit", "mlx-community/Qwen3-0.6B-4bit")
    longest = {"name": "kv heavy=4,recent=16"}
    levels = tuple(
        replace(level, model=name, cases=tuple(replace(c, **longest) for c in level.cases))
        for name in names
        for level in REPORT.levels
    )
    console = Console(width=WIDTH, record=True, soft_wrap=True, file=io.StringIO())
    parity.print_report(replace(REPORT, model=names[0], levels=levels), console)
    output = console.export_text()
    assert too_wide(output) == []
    assert "\u2026" not in output
    assert "kv heavy=4,recent=16 " in output
    tables = output.partition("\nlevel 1")[0].split(f"\n{names[1]}")
    assert len(tables) == 2
    for table in tables:
        rows = table.split()
        assert (rows.count("equal"), rows.count("differs")) == (2, 2)


@pytest.mark.parametrize("name", main.files)
def test_the_help_of_a_command_fits(run, name):
    output = run(name, "--help").output
    assert too_wide(output) == []
    assert re.findall(r".*\w-$", output, re.MULTILINE) == []


def test_a_table_of_figures_has_each_figure_whole(capsys):
    figures = tuple(f"{number * 1234.5:,.1f} to {number * 2345.6:,.1f}" for number in range(8))
    rows = (("a cache with a long title", *figures),)
    columns = tuple(f"column {number}" for number in range(8))
    table = Table("figures", ("cache", *columns), rows, note="what the figures are, " * 6)
    print_table(table, Console(width=WIDTH, soft_wrap=True))
    output = capsys.readouterr().out
    assert too_wide(output) == []
    assert all(figure in output for figure in figures)
