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
CORRECT_IT = (
    "A session cannot reply with it: correct it in a local copy of the model and give that "
    "folder as --model."
)


@dataclass(frozen=True)
class ModelTexts:
    """What was found.

    template: None where there is none, or none that can be used. unusable: why it cannot be
    used, "" where it can or there is none. remarks: what people should know.
    """

    template: ChatTemplate | None = None
    unusable: str = ""
    remarks: tuple[str, ...] = ()


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
        unusable = f"the chat template in {template.file} {problem}"
        return ModelTexts(unusable=unusable, remarks=(f"{unusable}. {CORRECT_IT}",))
    return ModelTexts(template)
