"""docs/architecture.md says what the code is: its picture, its paths, its packages and the tests that it names."""

import ast
import re
from pathlib import Path

import pytest
from kit.house import HOUSE, house_script

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
MAPS = {"architecture.md": PAGE, "CONTRIBUTING.md": (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")}
SECTIONS = ["Words", "Layers", "Flows", "Objectives", "Invariants", "Changes"]
PICTURE = re.compile(r"<!-- rooms: .*? -->\n```mermaid\n(.*?)```\n<!-- end of rooms -->", re.DOTALL)
GUARDS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))
ROOM = re.compile(r"^\| \*\*(?P<name>\w+)\*\* [^|]*\|[^|]*\| (?P<entries>[^|]*)\| ?(?P<imports>[^|]*)\|$", re.MULTILINE)


def test_the_sections_that_others_link_to():
    """Code cites docs/architecture.md#invariants and the like."""
    assert re.findall(r"^## (.*)$", PAGE, re.MULTILINE) == SECTIONS


@pytest.mark.long
def test_the_picture_is_drawn_from_the_imports():
    shown = PICTURE.search(PAGE)[1]
    assert shown.strip() == house_script.mermaid(HOUSE), "run scripts/architecture_picture.py"


def test_every_room_is_described():
    assert sorted(found["name"] for found in ROOM.finditer(PAGE)) == sorted(
        room for rooms in house_script.LEVELS for room in rooms
    )


def test_what_a_room_imports_is_what_it_says():
    arrows = HOUSE.room_arrows()
    for found in ROOM.finditer(PAGE):
        names = set(re.findall(r"\w+", found["imports"]))
        if names and not names & {"above", "below"}:
            assert arrows[found["name"]] <= names, found["name"]


def test_entry_points_exist():
    for found in ROOM.finditer(PAGE):
        for name in re.findall(r"`(\w+)`", found["entries"]):
            handed_on = [
                package for package in HOUSE.files if HOUSE.room(package) == found["name"] and name in HOUSE.public(package)
            ]
            assert handed_on or HOUSE.room(HOUSE.public("vinelm").get(name, "")) == found["name"], name


@pytest.mark.parametrize("page", MAPS)
def test_every_path_exists(page):
    for path in re.findall(r"`([\w.-]+(?:/[\w.-]+)*(?:/|\.py|\.pyi|\.md|\.toml))`", MAPS[page]):
        if "/" in path and "NAME" not in path:
            inside = (
                f".{path.rstrip('/')}" if path.count("/") == 1 else "/"
            )  # `latent/`: a folder of the room that is described
            assert (ROOT / path).exists() or [package for package in HOUSE.files if package.endswith(inside)], path


def test_every_class_exists():
    classes = {node.name for tree in HOUSE.trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    classes |= {name for tree in HOUSE.trees.values() for name in assigned(tree)}
    named = set(re.findall(r"`([A-Z][a-z]+\w*)`", PAGE))
    assert named - {"None"} <= classes


def assigned(tree):
    """Names that a module assigns at its top, such as type aliases."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def test_every_guard_exists():
    sources = {path: (ROOT / path).read_text(encoding="utf-8") for path, _ in GUARDS}
    lacking = [f"{path}::{name}" for path, name in GUARDS if not re.search(rf"^ *def {name}\(", sources[path], re.MULTILINE)]
    assert not lacking, "\n".join(lacking)


def test_every_invariant_has_a_guard():
    section = PAGE.split("## Invariants")[1].split("\n## ")[0]
    numbered = re.split(r"^\d+\. ", section, flags=re.MULTILINE)[1:]
    assert numbered
    for invariant in numbered:
        assert "tests/" in invariant, invariant
