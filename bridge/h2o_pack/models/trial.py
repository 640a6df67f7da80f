"""Runs libraries on a model's files in another process, with limits of time and memory.

A configuration, tensors or a tokenizer can be made to crash, to block or to end the library
that reads them. The process is kept for the next task, because importing mlx_lm takes seconds.
"""

from __future__ import annotations

import atexit
import json
import os
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

from h2o_pack.errors import Problems, UserError, in_one_line, unreadable
from h2o_pack.files.paths import refuse_full_temporary

SECONDS = 60.0
"""Seconds of processor time, so that a busy machine refuses no model."""
BYTES = 4 << 30
TASKS = {
    "describe": ("mlx_lm", "config.json", "h2o_pack.models.built"),
    "arguments": (
        "mlx_lm",
        "config.json and the headers of its tensors",
        "h2o_pack.models.built",
    ),
    "step": ("mlx_lm", "a step of the model", "h2o_pack.models.built"),
    "renderings": ("jinja2", "the chat template", "h2o_pack.models.texts"),
    "tokenizer": ("the tokenizers library", "tokenizer.json", "h2o_pack.models.loading"),
    "python_tokenizer": (
        "transformers",
        "tokenizer.json",
        "h2o_pack.resolved.python_tokenizer",
    ),
    "same_tokenizer": ("transformers", "tokenizer.json", "h2o_pack.resolved.python_tokenizer"),
    "chat": ("Jinja", "the chat template", "h2o_pack.resolved.chat"),
}
"""By function: the library that it runs, its input, and the function's module."""


class Worker:
    """The process for tasks; it starts when the first task comes."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        """Return the process, started if necessary."""
        if self._process is None or self._process.poll() is not None:
            self.stop()
            command = (
                "import sys; sys.path[:] = sys.argv[1:]; from h2o_pack.models import trial"
            )
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-c", f"{command}; trial.serve()", *sys.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # Only this program handles an interrupt of the terminal.
                start_new_session=True,
            )
        return self._process

    def ask(self, request: dict[str, Any]) -> dict[str, Any] | int:
        """Return the answer, or the status with which the process ended instead."""
        process = self.start()
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = b""
        except BaseException:  # the answer must not be taken for that of the next request
            self.stop()
            raise
        if not line:
            return process.wait()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        """End the process, if it runs."""
        if self._process is not None:
            self._process.kill()
            with suppress(BrokenPipeError):
                self._process.communicate()
        self._process = None


worker = Worker()
atexit.register(worker.stop)


def attempt(task: str, where: str, **arguments: Any) -> Any:
    """Run one of `TASKS` with arguments that JSON can hold, and return its value.

    Raises UserError: the function's own error, or the library crashed or exceeded the limit of
    memory or time.
    """
    answer = worker.ask({"task": task, "arguments": arguments, "seconds": SECONDS})
    library, files, _ = TASKS[task]
    if isinstance(answer, int) or "refused" in answer:
        refuse_full_temporary()
    if answer == -signal.SIGPROF:
        too_long = f"{library} takes more than {SECONDS:g} s of processor time for {files}"
        raise unreadable(where, too_long)
    if isinstance(answer, int):
        raise unreadable(where, f"{library} fails for {files}")
    problems = Problems(where)
    for what, remedy in answer.get("refused", ()):
        problems.add(what, remedy)
    problems.refuse()
    return answer["value"]


class UnusedLibrary(ModuleType):
    """Replaces a library that mlx_lm imports and that no task uses.

    Importing these libraries takes ten times as long as the parts of mlx_lm that tasks use.
    """

    def __getattr__(self, name: str) -> type:
        """Return an empty class, which mlx_lm can derive from and register classes with."""
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"register": staticmethod(lambda *_, **__: None)})


def serve() -> None:
    """Answer requests until there are no more; discard the output of libraries."""
    for name in ("transformers", "transformers.tokenization_utils_base", "huggingface_hub"):
        sys.modules[name] = UnusedLibrary(name)
    # The package without its __init__, which imports generation and conversion too.
    package = find_spec("mlx_lm")
    if package is not None:
        sys.modules["mlx_lm"] = module_from_spec(package)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    if sys.platform == "linux":  # macOS does not enforce such a limit
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    for line in sys.stdin.buffer:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, request.pop("seconds"))
        answers.write(json.dumps(run_task(**request)).encode() + b"\n")
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.flush()


def run_task(task: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Run a task; turn a library's exceptions and exits into errors."""
    library, files, module = TASKS[task]
    try:
        return {"value": getattr(import_module(module), task)(**arguments)}
    except UserError as refusal:
        errors = refusal.errors
    except Exception as error:  # noqa: BLE001 - a library may raise anything
        errors = unreadable(files, f"{library} fails for {files}: {in_one_line(error)}").errors
    except BaseException:  # noqa: BLE001 - Rust's panics and SystemExit
        errors = unreadable(files, f"{library} fails for {files}").errors
    return {"refused": [(error.what, error.remedy) for error in errors]}
