"""The house's rules of who may import whom (DESIGN §3), read from the source."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("profiler", "traces", "estimator", "controller", "workflows")
ON_TOP = ("report", "cli")
MAY_IMPORT = {
    "core": set(),
    "traces": {"core"},
    "estimator": {"core"},
    "controller": {"core"},
    "workflows": {"core"},
    "profiler": {"core", "traces"},
    "top": {"core", *PARTS, "top"},
}
CONFINED = {"sqlalchemy": ("traces",), "click": ("vinelm/cli",), "langgraph": ("vinelm/adapters", "profiler", "workflows")}
PUBLIC_FACE = "vinelm/__init__.py"


def source_files():
    folders = ("vinelm", *PARTS)
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def home(path: Path) -> str:
    first, second = (*path.relative_to(ROOT).parts, "")[:2]
    if first in PARTS:
        return first
    return "top" if second in ON_TOP else "core"


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.update({f"{node.module}.{alias.name}" for alias in node.names} | {node.module})
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"{path}: relative import"
    return names


def home_of_name(name: str) -> str | None:
    pieces = name.split(".")
    if pieces[0] != "vinelm":
        return None
    second = pieces[1] if len(pieces) > 1 else ""
    return second if second in PARTS else "top" if second in ON_TOP else "core"


@pytest.mark.parametrize("path", source_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_run_one_way(path):
    if str(path.relative_to(ROOT)) == PUBLIC_FACE:
        return  # hands names on, lazily
    mine = home(path)
    for name in imported(path):
        theirs = home_of_name(name)
        assert theirs is None or theirs == mine or theirs in MAY_IMPORT[mine], f"{mine} must not import {name}"
        assert name.split(".")[0] not in PARTS, f"import vinelm.{name}, not the bare {name}"


@pytest.mark.parametrize("path", source_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_heavy_libraries_stay_in_their_rooms(path):
    where = str(path.relative_to(ROOT))
    for name in imported(path):
        rooms = CONFINED.get(name.split(".")[0])
        assert rooms is None or where.startswith(rooms), f"{name} belongs in {', '.join(rooms or ())}"


def test_the_public_names_are_the_documented_ones():
    import vinelm

    for name in vinelm.__all__:
        assert getattr(vinelm, name).__name__ == name
