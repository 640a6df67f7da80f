"""The demo model as a partner in conversations."""

import shutil

import pytest

from h2o_pack.chat.model import load
from h2o_pack.choice.choose import Criteria
from h2o_pack.progress import silent
from h2o_pack.spec import CacheSpec, ModelSpec, PackageSpec
from tests.conftest import DEMO

THINKING = (
    "{% for m in messages %}{{ m.role }}:{{ m.content }}<|endoftext|>{% endfor %}"
    "{% if add_generation_prompt %}assistant:<think>"
    "{% if enable_thinking is defined and not enable_thinking %}</think>{% endif %}{% endif %}"
)


def chat_model(name="demo", **cache):
    """Load a model with the settings of a cache; without them, it keeps every token."""
    model = ModelSpec(model=str(name), cache=CacheSpec(**cache))
    return load(PackageSpec(models=(model,)), Criteria(), silent)


@pytest.fixture(scope="session")
def full():
    return chat_model()


@pytest.fixture(scope="session")
def bounded():
    return chat_model(max_kv=24, recall=True)


@pytest.fixture(scope="session")
def thinking(tmp_path_factory):
    """The demo model with a template that begins a reply with a thought, if not told else."""
    folder = tmp_path_factory.mktemp("models") / "thinking"
    shutil.copytree(DEMO, folder)
    (folder / "chat_template.jinja").write_text(THINKING)
    return chat_model(folder)
