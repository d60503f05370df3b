"""What ``import vinelm`` offers: every public name, with its type, whatever was imported before."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import vinelm

ROOT = Path(__file__).parents[2]
PARTS = ("controller", "estimator", "profiler", "traces", "workflows")
VERBS = ("estimate", "plan", "profile", "report")
STUB = ast.parse((ROOT / "vinelm" / "__init__.pyi").read_text())
NAMES = sorted(alias.asname for node in STUB.body if isinstance(node, ast.ImportFrom) for alias in node.names)

TYPES = {
    'vinelm.estimate("x.db")': "vinelm.trie.annotated_trie.AnnotatedTrie",
    'vinelm.plan("x.vine", maximize="accuracy")': "vinelm.controller.planning.decision.Decision",
    'vinelm.plan(vinelm.load_trie("x.vine"), vinelm.Objective(minimize="cost"))': (
        "vinelm.controller.planning.decision.Decision"
    ),
    'vinelm.profile("nl2sql", "models.toml", "x.db")': "vinelm.profiler.scheduling.results.ProfileResult",
    'vinelm.report("x.db", "x.vine", "out")': "pathlib.Path",
    'vinelm.VineLM("models.toml").session(vinelm.Objective(minimize="cost"))': (
        "vinelm.controller.session.session.Session | vinelm.policies.fixed.DefaultPolicy"
    ),
}
"""Expression to the type that mypy must reveal."""
MYPY = """
[mypy]
strict = True
python_version = 3.11
follow_imports = skip
[mypy-vinelm.*]
follow_imports = silent
"""
"""Types of other libraries are Any here: a sixth of the time. A public name that loses its type by that fails below."""


def test_the_public_names_are_those_of_the_stub():
    assert sorted(vinelm.__all__) == NAMES
    assert set(NAMES) <= set(dir(vinelm))
    for name in NAMES:
        assert getattr(vinelm, name).__name__ == name
        assert getattr(vinelm, name).__doc__


def test_no_module_has_the_name_of_a_public_name():
    modules = {path.stem for path in (ROOT / "vinelm").iterdir()} | set(PARTS)
    assert not modules & set(NAMES)


@pytest.mark.parametrize("verbs_first", [False, True])
def test_no_package_hides_a_verb(verbs_first):
    """Importing a sub-module sets an attribute of the package; none of them is a verb's."""
    code = (
        "import importlib, json, pkgutil, sys, warnings, vinelm\n"
        "warnings.simplefilter('ignore')\n"
        f"verbs = {VERBS!r}\n"
        f"before = [getattr(vinelm, verb) for verb in verbs] if {verbs_first} else None\n"
        "for found in pkgutil.walk_packages(vinelm.__path__, 'vinelm.'):\n"
        "    if found.ispkg or found.name.count('.') == 1:\n"
        "        importlib.import_module(found.name)\n"
        f"for part in {PARTS!r}:\n"
        "    importlib.import_module(f'vinelm.{part}')\n"
        "now = [getattr(vinelm, verb) for verb in verbs]\n"
        "assert before is None or before == now\n"
        "print(json.dumps([f'{type(f).__name__} {f.__name__}' for f in now]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [f"function {verb}" for verb in VERBS]


@pytest.fixture(scope="module")
def revealed(tmp_path_factory):
    """Expression to what mypy reveals; over a link farm like that of ``make types``, kept for mypy's cache."""
    farm = ROOT / "build" / "front_door"
    (farm / "vinelm").mkdir(parents=True, exist_ok=True)
    for item in (*(ROOT / "vinelm").iterdir(), *(ROOT / part for part in PARTS)):
        link = farm / "vinelm" / item.name
        if not link.exists():
            link.symlink_to(item)
    lines = ["import vinelm", f"from vinelm import {', '.join(NAMES)}"]
    lines += [f"reveal_type({expression})" for expression in (*NAMES, *TYPES)]
    snippet = tmp_path_factory.mktemp("typing") / "snippet.py"
    snippet.write_text("\n".join(lines) + "\n")
    (config := snippet.with_name("mypy.ini")).write_text(MYPY)
    command = [sys.executable, "-m", "mypy", "--config-file", str(config), str(snippet)]
    done = subprocess.run(command, cwd=farm, env={**os.environ, "MYPYPATH": "."}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(r'snippet\.py:(\d+): note: Revealed type is "(.*)"', done.stdout)
    return {lines[int(number) - 1].removeprefix("reveal_type(")[:-1]: shown for number, shown in found}


def test_type_checkers_see_the_type_of_every_public_name(revealed):
    assert set(NAMES) <= set(revealed)
    assert not [name for name in NAMES if re.search(r"^Any$|^def \(\*.*Any\) -> Any$", revealed[name])]


@pytest.mark.parametrize("expression", TYPES)
def test_the_verbs_return_what_they_say(revealed, expression):
    assert revealed[expression] == TYPES[expression]
