"""Tables of the kernels and of their checks, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from h2o_pack.kernels.translation import find_clang

if TYPE_CHECKING:
    from rich.console import Console

    from h2o_pack.kernels.checks import ChecksResult
    from h2o_pack.kernels.report import Kernel, KernelReport

STYLES = {"passed": "green", "failed": "red", "skipped": "yellow"}
NO_CLANG = "Instances, constants and memory are unknown without clang on PATH."


def print_checks(report: ChecksResult, console: Console) -> None:
    """Print what each check found, then the findings and what to do about the rest."""
    from rich.markup import escape

    table = new_table("check", "result", "s", "of")
    for each in report.checks:
        state = f"[{STYLES[each.state]}]{each.state}[/]"
        table.add_row(each.name, state, f"{each.seconds:.1f}", escape(each.about))
    console.print(table)
    for each in report.checks:
        if each.detail:
            console.print(f"{each.name} skipped: {escape(each.detail)}. {escape(each.remedy)}")
        for finding in each.findings:
            console.print(f"{each.name}: {escape(finding)}")


def print_kernels(report: KernelReport, console: Console) -> None:
    """Print each kernel, then the bytes of each format if they were counted."""
    for kernel in report.kernels:
        print_kernel(kernel, console)
    if find_clang() is None:
        console.print(NO_CLANG)
    if report.bytes:
        table = new_table("format", "read", "written", "ratio")
        for each in report.bytes:
            table.add_row(each.name, str(each.read), str(each.written), str(each.ratio))
        console.print("bytes of a token and layer:")
        console.print(table)


def print_kernel(kernel: Kernel, console: Console) -> None:
    """Print one kernel and its buffers."""
    instances = "?" if kernel.instances is None else len(kernel.instances)
    memory = "?" if kernel.threadgroup_bytes is None else kernel.threadgroup_bytes
    console.print(f"[bold]{kernel.name}[/] ({kernel.file})")
    console.print(f"  instances {instances}, threadgroup memory {memory} bytes")
    constants = "?" if kernel.constants is None else ", ".join(kernel.constants) or "none"
    console.print(f"  function constants: {constants}")
    table = new_table("buffer", "name", "role", "if")
    for buffer in kernel.buffers:
        table.add_row(str(buffer.index), buffer.name, buffer.role, buffer.gate)
    console.print(table)


def new_table(*headings: str) -> Any:
    """Return an empty table."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table
