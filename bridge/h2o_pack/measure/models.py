"""Models by name: what mlx_lm loads for them."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.hub.resolve import HUB_ID
from h2o_pack.models.adapter import WEIGHTS
from h2o_pack.models.catalogue import find, unknown
from h2o_pack.models.files import TOKENIZER, read_tensors
from h2o_pack.models.loading import try_tokenizer
from h2o_pack.spec import local_folder

BUNDLED = ("demo", "demo-4bit")


def loadable(name: str) -> str:
    """Return what `load` takes for an alias, a folder or an id on the hub.

    Raises:
        UserError: there is no such model.

    """
    known = find(name)
    if known is not None:
        return known.bundled or known.hub or known.folder
    if local_folder(name) is None and not HUB_ID.fullmatch(name):
        raise unknown(name, None)
    return name


def load(name: str, adapter: str | None = None) -> tuple[Any, Any]:
    """Load a model and its tokenizer; "demo" and "demo-4bit" are the bundled ones.

    adapter: the folder of a LoRA adapter in mlx-lm's form.

    Raises:
        UserError: mlx_lm cannot load it.

    """
    from h2o_py.loading import load as load_checked  # imports what takes seconds

    path = str(resources.files("h2o_pack.models") / name) if name in BUNDLED else name
    tokenizer = Path(path) / TOKENIZER
    if tokenizer.is_file() and name not in BUNDLED:
        try_tokenizer(tokenizer, name)
    if adapter is not None:
        read_tensors(Path(adapter) / WEIGHTS)  # mlx_lm would wait for a pipe
    try:
        loaded: Any = load_checked(path, adapter_path=adapter)
    except (OSError, ValueError) as error:
        raise UserError(
            f'the model "{name}" could not be loaded: {error}',
            remedy="Give a folder, or an id on huggingface.co, of a model for mlx_lm.",
            code=ExitCode.MODEL,
        ) from error
    return loaded[0], loaded[1]
