"""What a model's makers say: how to talk with it, how to sample, and on which terms."""

from __future__ import annotations

from h2o_pack.architectures.model import Model
from h2o_pack.errors import Problems
from h2o_pack.models import chat_template, generation_config, license_terms
from h2o_pack.models.files import is_notice
from h2o_pack.plan.package_plan import ModelTexts

NO_TEMPLATE = (
    "the model has no chat template: a session gives it plain lines, which only a model "
    "without training for chat goes on with well."
)
CORRECT_IT = (
    "A session cannot reply with it: correct it in a local copy of the model and give that "
    "folder as --model."
)


def read_model_texts(model: Model) -> ModelTexts:
    """Read and check what a model says of itself; nothing where the hub cannot be asked.

    Raises:
        UserError: all that is wrong in generation_config.json, or a file that is none.

    """
    from h2o_pack.hub.resolve import read_small

    where = str(model.folder or model.id)
    notices = [
        file.path
        for file in model.files
        if is_notice(file.path) and file.size <= license_terms.LARGEST
    ]
    largest = {
        **dict.fromkeys(chat_template.FILES, chat_template.LARGEST),
        generation_config.FILE: generation_config.LARGEST,
        **dict.fromkeys(notices, license_terms.LARGEST),
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
    terms = license_terms.read_license({name: files[name] for name in notices})
    remarks = tuple(filter(None, [license_terms.remark(terms)]))
    if template is None:
        return ModelTexts(license=terms, remarks=(NO_TEMPLATE, *remarks))
    problem = template.problem()
    if problem:
        unusable = f"the chat template in {template.file} {problem}"
        return ModelTexts(None, unusable, terms, (f"{unusable}. {CORRECT_IT}", *remarks))
    return ModelTexts(template, license=terms, remarks=remarks)
