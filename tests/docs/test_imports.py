"""What readers copy imports public names only: from a package, the front door, or a core module."""

import ast
import re
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = {name: ROOT / name for name in ("controller", "estimator", "profiler", "traces", "workflows")}
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
CODE = re.compile(r"^ *from vinelm\S* import ", re.MULTILINE)


def sources():
    """(place, source) of every block and file."""
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))):
        for number, block in enumerate(BLOCK.findall(page.read_text(encoding="utf-8"))):
            yield f"{page.name}, block {number}", block
    for folder in ("docs/examples", "examples"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def imported(source):
    """(module, name) of each import of VineLM, those in strings of code included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names if is_ours(alias.name))
        elif isinstance(node, ast.ImportFrom) and is_ours(node.module or ""):
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.search(node.value):
            yield from imported(node.value)


def is_ours(module):
    return module.partition(".")[0] == "vinelm"


def place(module):
    """The file or folder of a module."""
    pieces = module.split(".")[1:]
    if pieces and pieces[0] in FOLDERS:
        return FOLDERS[pieces[0]].joinpath(*pieces[1:])
    return ROOT.joinpath("vinelm", *pieces)


def is_public(module, name):
    """The package hands the name on; or the module is the front door or in the core itself, or holds a contract suite."""
    if (module, name) == ("vinelm", None):  # `import vinelm`
        return True
    if place(module).is_dir():
        stub = place(module) / "__init__.pyi"
        tree = ast.parse(stub.read_text(encoding="utf-8") if stub.exists() else "")
        nodes = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
        return name in {alias.asname or alias.name for node in nodes for alias in node.names}
    return module.count(".") == 1 or module.endswith(".testing")


IMPORTS = [(place, *pair) for place, source in sources() for pair in imported(source)]
"""(place, module, name)."""


def test_imports_are_public():
    found = [f"{place}: from {module} import {name}" for place, module, name in IMPORTS if not is_public(module, name)]
    assert not found, "\n".join(found)


def test_imported_names_exist():
    lacking = []
    for place, module, name in IMPORTS:
        try:
            if not hasattr(import_module(module), name or "__name__"):
                import_module(f"{module}.{name}")
        except ImportError as error:
            lacking.append(f"{place}: {error}")
    assert not lacking, "\n".join(lacking)
