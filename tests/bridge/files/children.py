"""Child processes that stop themselves at the n-th thing that they do to a folder.

The children are forked from one process that has imported all that they need, so that
many stops cost little. Python's audit events name each change before it is made.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

CHANGES = (
    "open", "os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "os.truncate",
    "shutil.rmtree", "shutil.copyfile",
)  # fmt: skip


def in_child(work: Callable[[], object]) -> int:
    """Do something in a forked process; return its exit code, negative for a signal."""
    child = os.fork()
    if child == 0:
        code = 70
        signal.signal(signal.SIGINT, signal.default_int_handler)  # not what was inherited
        try:
            work()
            code = 0
        except KeyboardInterrupt:
            code = 130
        except SystemExit as error:
            code = int(error.code or 0)
        except BaseException:  # noqa: BLE001 - the child ends here, whatever it was
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def stopping(
    work: Callable[[], object], folder: Path, number: int, how: signal.Signals
) -> Callable[[], None]:
    """Return `work` that gets a signal before its n-th change below `folder`."""

    def stopped() -> None:
        def check(_event: str) -> None:
            nonlocal number
            number -= 1
            if number == 0:
                os.kill(os.getpid(), how)

        watch(folder, check)
        work()

    return stopped


def changes_of(work: Callable[[], object], folder: Path) -> list[str]:
    """Return the kinds of the changes that `work` makes below a folder, tried in a child."""
    reading, writing = os.pipe()

    def counted() -> None:
        events: list[str] = []
        watch(folder, events.append)
        work()
        os.write(writing, " ".join(events).encode())

    code = in_child(counted)
    os.close(writing)
    with os.fdopen(reading) as result:
        events = result.read().split()
    assert code == 0, code
    return events


def watch(folder: Path, changed: Callable[[str], object]) -> None:
    """Call `changed` with the kind of each change below a folder, from now on."""
    prefix = str(folder)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event not in CHANGES or not arguments:
            return
        if event == "open" and not set("wax+") & set(str(arguments[1] or "")):
            return
        in_deleted_folder = event in ("os.remove", "os.rmdir") and arguments[1] != -1
        if in_deleted_folder or any(str(each).startswith(prefix) for each in arguments[:2]):
            changed(event)

    sys.addaudithook(hook)
