"""The house in figures: files, arrows, depth and circles by package, what is public, and what a request passes.

Structure is read from the source (`ast`). Then five small scenarios are run, and tell which of our files and functions they
pass: a served stage (the first and a later one), a profiled unit, `vinelm estimate`, `vinelm plan` (`house_passes.py`).
--root and --python point at another checkout and its interpreter, to compare. --mermaid prints the picture of
docs/architecture.md. --where FIGURE lists what makes up one of the figures. Figures are reported, not limited: a limit on lines
or files is met by cutting, not by design.
"""

from __future__ import annotations

import argparse
import ast
import gc
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]

from house_parts import measured  # noqa: E402 - found by the line before

PARTS = ("controller", "estimator", "profiler", "traces", "workflows")
LEVELS = (
    ("core",),
    ("telemetry", "backends"),
    ("adapters", "traces", "estimator", "proof"),
    ("profiler", "controller", "workflows"),
    ("evaluation",),
    ("api",),
    ("running", "scaffold"),
    ("verdicts", "batches", "replay"),
    ("reports", "gateway", "autopilot"),
    ("demo", "trying"),
    ("cli",),
)
"""A room imports rooms of the lines above its own, never one of its own line."""
CORE_FOLDERS = (
    "catalog",
    "datasets",
    "io",
    "judging",
    "money",
    "plans",
    "policies",
    "prompts",
    "requests",
    "rows",
    "signals",
    "template",
    "tools",
    "trie",
    "vinefile",
)


class House:
    """The source files of one checkout, by dotted module name."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = {
            self._module(path): path
            for top in ("vinelm", *PARTS)
            for path in sorted((root / top).rglob("*.py"))
            if "__pycache__" not in path.parts
        }

    @cached_property
    def trees(self) -> dict[str, ast.Module]:
        """The syntax tree of every file. They stay: a collector that looks at them again and again takes twice the parsing."""
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in self.files.items()}
        finally:
            gc.freeze()
            if was_enabled:
                gc.enable()

    @cached_property
    def nodes(self) -> dict[str, list[ast.AST]]:
        """The nodes of every tree: walking takes longer than anything else here."""
        return {name: list(ast.walk(tree)) for name, tree in self.trees.items()}

    @cached_property
    def code_lines(self) -> dict[str, int]:
        """Lines of every file that are neither blank nor comment nor docstring."""
        return {name: code_lines(path, self.nodes[name]) for name, path in self.files.items()}

    @cached_property
    def arrows(self) -> dict[str, set[str]]:
        """Which of our modules each module imports."""
        return {name: set(self._imports(name)) - {name} for name in self.files}

    def _module(self, path: Path) -> str:
        pieces = path.relative_to(self.root).with_suffix("").parts
        pieces = pieces if pieces[0] == "vinelm" else ("vinelm", *pieces)
        return ".".join(pieces[:-1] if pieces[-1] == "__init__" else pieces)

    def _imports(self, name: str) -> Iterator[str]:
        """Modules that a file imports: at its top, in a function, or for type checkers only. A name that a package hands on
        counts as an import of the file that has it.
        """
        for node in self.nodes[name]:
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    yield from self._home(node.module, alias.name)
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if alias.name in self.files)

    def _home(self, module: str, name: str) -> Iterator[str]:
        if f"{module}.{name}" in self.files and name not in self.public(module):
            yield f"{module}.{name}"
        elif module in self.files:
            home = self.public(module).get(name, module)
            yield home if home in self.files else module

    @cache  # noqa: B019 - lives as long as the script
    def public(self, package: str) -> Mapping[str, str]:
        """The names that a package's ``__init__.pyi`` hands on, each with the module that has it."""
        path = self.files.get(package)
        stub = None if path is None or path.name != "__init__.py" else path.with_suffix(".pyi")
        if stub is None or not stub.exists():
            return {}
        found = {}
        for node in ast.parse(stub.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom):
                module = f"{package}.{node.module}"
                found.update({alias.name: self.public(module).get(alias.name, module) for alias in node.names})
        return found

    def room(self, module: str) -> str:
        """The room of the layer table that a module belongs to."""
        pieces = module.split(".")
        if len(pieces) == 1:
            return "front door"
        return pieces[1] if f"vinelm.{pieces[1]}" in self._packages and pieces[1] not in CORE_FOLDERS else "core"

    @cached_property
    def _packages(self) -> set[str]:
        return {name for name, path in self.files.items() if path.name == "__init__.py"}

    def folder(self, module: str) -> str:
        """The package that a module lies in."""
        return module if self.files[module].name == "__init__.py" else module.rpartition(".")[0]

    def folders(self) -> dict[str, list[str]]:
        """Every package with the files that lie in it, its own ``__init__`` left out."""
        found: dict[str, list[str]] = defaultdict(list)
        for name, path in self.files.items():
            if path.name != "__init__.py":
                found[self.folder(name)].append(name)
        return dict(found)

    def room_arrows(self) -> dict[str, set[str]]:
        """Which rooms each room imports."""
        found: dict[str, set[str]] = defaultdict(set)
        for name, targets in self.arrows.items():
            mine = self.room(name)
            found[mine] |= {self.room(target) for target in targets} - {mine}
        found.pop("front door", None)
        return dict(found)


def circles(arrows: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """One circle after the other, each broken where it was found."""
    left = {name: set(targets) for name, targets in arrows.items()}
    found = []
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            circle = error.args[1][::-1]
            found.append(circle)
            left[circle[0]].discard(circle[1])
        else:
            return found


def depth(names: Iterable[str], arrows: Mapping[str, Iterable[str]]) -> int:
    """Files on the longest chain of imports among ``names``; circles are cut."""
    inside = set(names)
    left = {name: {target for target in arrows[name] if target in inside} for name in inside}
    for circle in circles(left):
        left[circle[0]].discard(circle[1])
    levels: dict[str, int] = {}
    for name in TopologicalSorter(left).static_order():
        levels[name] = 1 + max((levels[target] for target in left[name]), default=0)
    return max(levels.values(), default=0)


def misdirected(house: House) -> list[str]:
    """Imports that run against the layers."""
    level = {room: number for number, rooms in enumerate(LEVELS) for room in rooms}
    wrong = []
    for name, targets in sorted(house.arrows.items()):
        mine = house.room(name)
        if mine == "front door":
            continue
        for target in sorted(targets):
            theirs = house.room(target)
            if theirs == "front door" or (theirs != mine and level.get(theirs, 99) >= level.get(mine, -1)):
                wrong.append(f"{name} -> {target}")
    return wrong


def public_definitions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Public classes, functions and methods of a module."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    open_nodes: list[ast.AST] = [tree]
    while open_nodes:
        for node in getattr(open_nodes.pop(), "body", ()):
            if isinstance(node, kinds) and not node.name.startswith("_") and not _is_overload(node):
                yield node
                if isinstance(node, ast.ClassDef):
                    open_nodes.append(node)


def libraries(nodes: Iterable[ast.AST]) -> set[str]:
    """The top-level packages that a module imports, wherever it does."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def class_names(nodes: Iterable[ast.AST]) -> list[str]:
    """The classes that a module defines, private ones left out."""
    return [node.name for node in nodes if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def has_relative_import(nodes: Iterable[ast.AST]) -> bool:
    """Whether a module imports from a place that is not spelled out."""
    return any(isinstance(node, ast.ImportFrom) and node.level for node in nodes)


def _is_overload(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    return any(isinstance(item, ast.Name) and item.id == "overload" for item in node.decorator_list)


def code_lines(path: Path, nodes: Iterable[ast.AST]) -> int:
    """Lines that are neither blank nor comment nor docstring."""
    source = path.read_text(encoding="utf-8")
    quiet = set()
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            quiet |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(source.splitlines(), start=1)
    return sum(number not in quiet and bool(line.strip()) and not line.strip().startswith("#") for number, line in lines)


def function_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function's body, its docstring left out."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return 0 if not body else (body[-1].end_lineno or 0) - body[0].lineno + 1


def percentile(values: Iterable[int], part: float) -> int:
    """The smallest value that at least ``part`` percent of the values do not exceed; 0 without values."""
    ordered = sorted(values)
    return ordered[max(0, -int(-len(ordered) * part // 100) - 1)] if ordered else 0


def front_door(house: House) -> dict[str, list[str]]:
    """The names of ``vinelm.__all__``, and those of them that a type checker sees as ``Any``."""
    init = house.files["vinelm"]
    stub = init.with_suffix(".pyi")
    typed = {
        alias.asname or alias.name
        for path in (init, stub)
        if path.exists()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    names = set(house.public("vinelm"))
    for node in house.trees["vinelm"].body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            names |= {key.value for key in node.value.keys if isinstance(key, ast.Constant)}
    return {"names": sorted(names), "any": sorted(names - typed)}


def figures(house: House) -> dict[str, object]:
    """Everything that the source alone tells."""
    folders = house.folders()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    lengths = [function_lines(node) for nodes in house.nodes.values() for node in nodes if isinstance(node, kinds)]
    files = house.code_lines
    undocumented = [
        f"{name}.{node.name}"
        for name, tree in house.trees.items()
        for node in public_definitions(tree)
        if ast.get_docstring(node) is None
    ]
    door = front_door(house)
    return {
        "files": len(house.files),
        "code_lines": sum(files.values()),
        "arrows": sum(map(len, house.arrows.values())),
        "circles": circles(house.arrows),
        "against_the_layers": misdirected(house),
        "packages": {
            folder: {
                "files": len(inside),
                "arrows_inside": sum(target in inside for name in inside for target in house.arrows[name]),
                "depth": depth(inside, house.arrows),
            }
            for folder, inside in sorted(folders.items())
        },
        "body_lines": {str(part): percentile(lengths, part) for part in (50, 90, 99)},
        "public_names": len(door["names"]),
        "public_names_without_docstring": undocumented,
        "public_names_typed_any": door["any"],
    }


# -- what a request passes ---------------------------------------------------------------------------------------------


def passes(root: Path, python: str) -> dict[str, dict[str, list[str]]]:
    """Files and functions that each scenario passes in that checkout (`house_passes.py`)."""
    command = [python, str(Path(__file__).with_name("house_passes.py")), str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, dict[str, list[str]]] = json.loads(done.stdout)
    return found


def counted(passed: dict[str, dict[str, list[str]]]) -> dict[str, dict[str, int]]:
    """How many files and functions each scenario passes."""
    return {name: {what: len(one) for what, one in row.items()} for name, row in passed.items()}


def traced(house: House, python: str, passed: dict[str, dict[str, list[str]]]) -> dict[str, measured.Figure]:
    """The figures that can be traced to places, with what makes them up."""
    return measured.of_source(house, ("vinelm", *PARTS)) | measured.of_commands(python) | measured.of_passes(passed)


# -- printing ----------------------------------------------------------------------------------------------------------


def mermaid(house: House) -> str:
    """The rooms by level, and an arrow from each room to those it imports; arrows that others imply are left out."""
    arrows = house.room_arrows()
    lines = ["flowchart TD"]
    for rooms in LEVELS:
        lines += [f'    {room}["{room}"]' for room in rooms]
    for room, targets in sorted(arrows.items()):
        implied = {far for near in targets for far in _reached(arrows, near)}
        lines += [f"    {room} --> {target}" for target in sorted(targets - implied)]
    return "\n".join(lines)


def _reached(arrows: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    todo = [start]
    while todo:
        for target in arrows.get(todo.pop(), ()):
            if target not in found:
                found.add(target)
                todo.append(target)
    return found


def table(found: dict[str, object]) -> Iterator[str]:
    """The figures as lines of text."""
    packages: dict[str, dict[str, int]] = found["packages"]  # type: ignore[assignment]
    yield f"{'package':40} {'files':>5} {'arrows':>6} {'depth':>5}"
    for name, row in packages.items():
        yield f"{name:40} {row['files']:5} {row['arrows_inside']:6} {row['depth']:5}"
    yield ""
    for name, value in found.items():
        if name not in ("packages", "passes", "traced"):
            rows = value if isinstance(value, list) else []
            yield f"{name.replace('_', ' '):36} {len(rows) if isinstance(value, list) else value}"
            yield from (f"    {' -> '.join(one) if isinstance(one, list) else one}" for one in rows)
    scenarios: dict[str, dict[str, int]] = found.get("passes", {})  # type: ignore[assignment]
    for name, row in scenarios.items():
        yield f"{name:20} passes {row['files']} files, {row['functions']} functions"
    for name, value in found.get("traced", {}).items():  # type: ignore[attr-defined]
        yield f"{name:36} {value:g}"


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--mermaid", action="store_true", help="the rooms and their imports as a Mermaid diagram")
    parser.add_argument("--root", type=Path, default=HERE, help="the checkout to look at")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has that checkout installed")
    parser.add_argument("--no-passes", action="store_true", help="leave the scenarios out: run nothing")
    parser.add_argument("--where", metavar="FIGURE", help="what makes up one of the figures")
    options = parser.parse_args()
    root = options.root.resolve()
    house = House(root)
    if options.mermaid:
        print(mermaid(house))
        return 0
    passed = {} if options.no_passes else passes(root, options.python)
    own = traced(house, options.python, passed)
    if options.where:
        print("\n".join(own[options.where].where))
        return 0
    found = (
        figures(house)
        | ({"passes": counted(passed)} if passed else {})
        | {"traced": {name: one.value for name, one in own.items()}}
    )
    print(json.dumps(found) if options.json else "\n".join(table(found)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
