"""The catalogue of models: the project's own, extended by the user's."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from h2o_pack.errors import ExitCode, UserError, model_error, nearest_product
from h2o_pack.facts import KnownModel, known_models
from h2o_pack.files.paths import usual_folder
from h2o_pack.files.toml import Blame, read_rows
from h2o_pack.model import Model, Weights
from h2o_pack.models.config import describe

VARIABLE = "H2O_PACK_MODELS"
QUANTIZATION = {"bits": 4, "group_size": 64}
BLAME = Blame(
    "Correct the file; `h2o-pack models --help` names the file whose comments explain the "
    "keys.",
    ExitCode.USAGE,
)


@dataclass(frozen=True)
class OwnModel(KnownModel):
    """A model of a user's catalogue: on the hub or in a folder."""

    def __post_init__(self) -> None:
        """Refuse an impossible name, and a model without exactly one of hub id and folder."""
        if not self.name.strip() or "@" in self.name:
            raise ValueError(f"{self.name!r} cannot be the name of a model")
        if bool(self.hub) == bool(self.folder) or self.bundled:
            raise ValueError(f'"{self.name}" must have either hub or folder')


def catalogue() -> tuple[KnownModel, ...]:
    """Return all known models; a user's model replaces the project's model of the same name.

    The user's catalogue is $H2O_PACK_MODELS, or else models.toml in the user's configuration
    folder, if there is one. Raises UserError: the file cannot be read or an entry does not fit
    the schema.
    """
    models = {model.name.lower(): model for model in known_models().values()}
    path = users_file(VARIABLE, "models.toml")
    if path is not None:
        for model in read_rows(path, "model", OwnModel, BLAME, unique="name"):
            # A folder is relative to the file.
            folder = model.folder and str(path.parent / Path(model.folder).expanduser())
            models[model.name.lower()] = replace(model, folder=folder)
    return tuple(models.values())


def find(name: str) -> KnownModel | None:
    """Return the model of a short name or hub id, ignoring case; None if there is none.

    An entry with a revision of its own has only its short name.
    """
    models = {model.hub.lower(): model for model in catalogue() if not model.revision}
    models |= {model.name.lower(): model for model in catalogue()}
    return models.get(name.lower()) if name else None


def unknown(name: str) -> UserError:
    """Make the error for a name that is unknown."""
    names = [model.name for model in catalogue()]
    return model_error(
        f"there is no model {name!r}",
        f"{nearest_product(name[:200], names)}Give a short name of `h2o-pack models`, a "
        "folder, or an id on huggingface.co such as mlx-community/Qwen3-4B-4bit.",
    )


def as_model(entry: KnownModel) -> Model | None:
    """Describe a model from the catalogue alone; None if its entry has no shapes."""
    if not entry.config:
        return None
    document = {"quantization": QUANTIZATION, **entry.config}
    description = describe(document, f"{entry.name} in the catalogue", partial=True)
    text = entry.config.get("text_config", entry.config)
    tied = bool(text.get("tie_word_embeddings", True))
    weights = Weights(entry.weights_bytes, tied, entry.read_per_token)
    return Model(
        entry.hub or entry.name,
        "",
        description.config,
        weights,
        (),
        None,
        remarks=description.remarks,
    )


def users_file(variable: str, name: str) -> Path | None:
    """Return the file that an environment variable names, or else the user's file, if any."""
    if place := os.environ.get(variable):
        return Path(place).expanduser()
    folder = usual_folder("XDG_CONFIG_HOME", ".config", "Library/Application Support")
    return folder / name if (folder / name).exists() else None
