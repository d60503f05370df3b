"""What tests build stands in one place, and every test file is a test file."""

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]
OTHERS = ("attacks", "house/before")
"""Attacks, which run by themselves, too, and an application as its users wrote it, which tests read as a file."""


def test_helpers_stand_in_the_kit():
    elsewhere = [
        name
        for name in sorted(str(path.relative_to(TESTS)) for path in TESTS.rglob("*.py"))
        if not Path(name).name.startswith("test_") and Path(name).name != "conftest.py"
        if not name.startswith(("kit/", *(f"{folder}/" for folder in OTHERS)))
    ]
    assert not elsewhere, "helpers of tests belong into tests/kit: " + ", ".join(elsewhere)


def test_the_kit_lists_its_modules():
    said = ast.get_docstring(ast.parse((TESTS / "kit" / "__init__.py").read_text(encoding="utf-8")))
    modules = [path for path in (TESTS / "kit").rglob("*.py") if path.name != "__init__.py"]
    missing = [str(path.relative_to(TESTS)) for path in sorted(modules) if f"{path.stem}``" not in said]
    assert not missing, "no line in tests/kit/__init__.py: " + ", ".join(missing)
