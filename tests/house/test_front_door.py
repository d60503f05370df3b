"""What ``import vinelm`` offers: every public name, with its type, whatever was imported before."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import vinelm

ROOT = Path(__file__).parents[2]
PARTS = ("controller", "estimator", "profiler", "traces", "workflows")
VERBS = ("estimate", "plan", "profile", "report")
STUB = ast.parse((ROOT / "vinelm" / "__init__.pyi").read_text())
NAMES = sorted(alias.asname for node in STUB.body if isinstance(node, ast.ImportFrom) for alias in node.names)


def test_the_public_names_are_those_of_the_stub():
    assert sorted(vinelm.__all__) == NAMES
    assert set(NAMES) <= set(dir(vinelm))
    for name in NAMES:
        assert getattr(vinelm, name).__name__ == name
        assert getattr(vinelm, name).__doc__


def test_no_module_has_the_name_of_a_public_name():
    modules = {path.stem for path in (ROOT / "vinelm").iterdir()} | set(PARTS)
    assert not modules & set(NAMES)


def test_no_package_hides_a_verb():
    """Importing a sub-module sets an attribute of the package; none of them is a verb's."""
    code = (
        "import importlib, json, pkgutil, sys, warnings, vinelm\n"
        "warnings.simplefilter('ignore')\n"
        f"verbs = {VERBS!r}\n"
        "before = [getattr(vinelm, verb) for verb in verbs]\n"
        "for found in pkgutil.walk_packages(vinelm.__path__, 'vinelm.'):\n"
        "    if found.ispkg or found.name.count('.') == 1:\n"
        "        importlib.import_module(found.name)\n"
        f"for part in {PARTS!r}:\n"
        "    importlib.import_module(f'vinelm.{part}')\n"
        "now = [getattr(vinelm, verb) for verb in verbs]\n"
        "assert before == now\n"
        "print(json.dumps([f'{type(f).__name__} {f.__name__}' for f in now]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [f"function {verb}" for verb in VERBS]


def test_make_types_looks_at_every_public_name():
    """There a name without a type is an error."""
    checked = (ROOT / "tests" / "kit" / "front_door_types.py").read_text()
    assert re.findall(r"^    vinelm\.(\w+)\.nothing,  # type: ignore\[attr-defined\]$", checked, re.MULTILINE) == NAMES
