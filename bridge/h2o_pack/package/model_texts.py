"""What a model's makers say of talking with it: the chat template, and how to sample."""

from __future__ import annotations

from dataclasses import dataclass

from h2o_pack.architectures.model import Model
from h2o_pack.errors import Problems
from h2o_pack.models import chat_template, generation_config
from h2o_pack.models.chat_template import ChatTemplate

NO_TEMPLATE = (
    "the model has no chat template: a session gives it plain lines, which only a model "
    "without training for chat goes on with well."
)


@dataclass(frozen=True)
class ModelTexts:
    """What was found.

    template: None where there is none, or none that can be used. remarks: what people should
    know.
    """

    template: ChatTemplate | None = None
    remarks: tuple[str, ...] = ()

    @property
    def variables(self) -> tuple[str, ...]:
        """What the template reads that not every template does."""
        return self.template.variables if self.template else ()


def read_model_texts(model: Model) -> ModelTexts:
    """Read and check what a model says of itself; nothing where the hub cannot be asked.

    Raises:
        UserError: all that is wrong in generation_config.json, or a file that is none.

    """
    from h2o_pack.hub.small_files import read_small

    where = str(model.folder or model.id)
    largest = {
        **dict.fromkeys(chat_template.FILES, chat_template.LARGEST),
        generation_config.FILE: generation_config.LARGEST,
    }
    files = read_small(model, largest)
    if files is None:
        return ModelTexts()
    problems, template = Problems(where), None
    with problems.caught():
        template = chat_template.find_template(files, where)
    with problems.caught():
        if generation_config.FILE in files:
            data = files[generation_config.FILE]
            generation_config.check(data, model.config.vocabulary, where)
    problems.refuse()
    if template is None:
        return ModelTexts(remarks=(NO_TEMPLATE,))
    problem = template.problem()
    if problem:
        return ModelTexts(remarks=(unusable(template, problem),))
    return ModelTexts(template)


def unusable(template: ChatTemplate, problem: str) -> str:
    """Say what a template that cannot be used means."""
    return (
        f"the chat template in {template.file} {problem}. A session cannot reply with it: "
        "correct it in a local copy of the model and give that folder as --model."
    )
