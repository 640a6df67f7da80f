"""The Swift samples of a page: blocks of code, each as a file that compiles by itself."""

import re

BLOCK = re.compile(r'^```swift(?: title="(\w+)\.swift")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
MODULES = (
    "Foundation", "H2OChatScreen", "H2OFoundationModels", "H2OKit", "H2OSessions",
    "MLXLLM", "MLXLMCommon", "SwiftUI",
)  # fmt: skip
FUNCTION = "@MainActor private func sample(model: H2OModel, session: H2OSession, folder: URL)"


def samples(page: str, text: str, *models: str) -> dict[str, str]:
    """Return {file name: text} of a page's blocks of Swift.

    A block with a title is a file. Another block has statements of an async function, in which
    there are a model, a session and a folder. It imports MODULES, and the first of `models`
    unless it imports one itself. Errors name the page and its lines.

    models: names of modules of packages.
    """
    files = {}
    for number, block in enumerate(BLOCK.finditer(text)):
        title, code = block.groups()
        line = text[: block.start(2)].count("\n") + 1
        place = f'#sourceLocation(file: "{page}", line: {line})'
        if title is None:
            lines = code.splitlines()
            imports = [line for line in lines if line.startswith("import ")]
            own = [f"import {name}" for name in models]
            imports += [f"import {name}" for name in MODULES]
            imports += [] if set(own) & set(imports) else own[:1]
            body = ["" if line in imports else line for line in lines]
            code = "\n".join((*body, "#sourceLocation()", "}", ""))
            place = "\n".join((*imports, f"{FUNCTION} async throws {{", place))
        name = f"{re.sub(r'[^a-z]', '-', page)}-{title or number}.swift"
        files[name] = f"{place}\n{code}"
    return files
