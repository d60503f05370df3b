"""A leaf can be deleted: without its folder and its registration the rest imports, plans, profiles and serves as before."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("controller", "estimator", "profiler", "traces", "workflows")
BATCH_NAMES = """\
from .batches.batch import batch as batch
from .batches.result import BatchResult as BatchResult
"""
LEAVES = {
    "graphqa": (
        ["workflows/graphqa"],
        {"vinelm/cli/commands/demo.py": '"graphqa": (', "workflows/registry.py": '"graphqa": ('},
    ),
    "gateway": (
        ["vinelm/gateway", "vinelm/cli/commands/gateway.py", "vinelm/cli/commands/keys.py"],
        {"vinelm/cli/main.py": '"gateway", "keys", '},
    ),
    "autopilot": (
        ["vinelm/autopilot", "vinelm/cli/commands/autopilot.py"],
        {"vinelm/cli/main.py": '"autopilot", '},
    ),
    "batch": (
        ["vinelm/batches", "vinelm/cli/commands/batch.py", "vinelm/reports/batch_page.py"],
        {"vinelm/cli/main.py": '"batch", ', "vinelm/__init__.pyi": BATCH_NAMES},
    ),
}
"""Leaf to its files, and to the places that register it, one each: the words to take out, or where its entry begins."""
SMOKE = """
import contextlib, importlib, importlib.util, io, pathlib, sys
# An editable installation would find the deleted leaf in the original tree.
sys.meta_path[:] = [one for one in sys.meta_path if "__editable__" not in getattr(one, "__module__", "")]
sys.path_hooks[:] = [one for one in sys.path_hooks if "__editable__" not in repr(one) + getattr(one, "__module__", "")]
sys.path_importer_cache.clear()
from vinelm.cli.main import main
root = pathlib.Path(sys.argv[1]).resolve()
for gone in sys.argv[2:]:
    assert importlib.util.find_spec(gone) is None, f"{gone} is still found"
assert pathlib.Path(sys.modules["vinelm"].__file__).is_relative_to(root), "not the copy"
for path in sorted(root.rglob("*.py")):
    name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
    if name not in {"vinelm.__main__", "vinelm.profiler.cluster.ray_hosts"}:
        module = importlib.import_module(name)
        for public in getattr(module, "__all__", ()):  # found where it is first used
            getattr(module, public)
LINES = ["--help", "demo --no-open --quiet --output-dir demo", "plan demo/demo.vine --maximize accuracy", "check code"]
for line in LINES:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(line.split())
    assert code == 0, (line, said.getvalue())
"""


def without_entry(source, begins):
    """The source without the entry of a dictionary that begins so, or without the words."""
    if not begins.endswith("("):
        assert source.count(begins) == 1
        return source.replace(begins, "")
    (line,) = (at for at, text in enumerate(source.splitlines(), start=1) if text.strip().startswith(begins))
    values = [value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Dict) for value in node.values]
    last = next(value.end_lineno for value in values if value.lineno == line)
    return "".join(text for at, text in enumerate(source.splitlines(keepends=True), start=1) if not line <= at <= last)


def copied(folder):
    """The product as an installed package has it, in a folder of its own."""
    shutil.copytree(ROOT / "vinelm", folder / "vinelm", ignore=shutil.ignore_patterns("__pycache__"))
    for part in PARTS:
        shutil.copytree(ROOT / part, folder / "vinelm" / part, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def placed(folder, path):
    """Where a file of the repository lies in the copy."""
    return folder / (path if path.startswith("vinelm/") else f"vinelm/{path}")


@pytest.mark.long
@pytest.mark.parametrize("leaf", LEAVES)
def test_the_rest_works_without_a_leaf(leaf, tmp_path):
    files, registered = LEAVES[leaf]
    copy = copied(tmp_path / "copy")
    for path in files:
        gone = placed(copy, path)
        shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    for path, begins in registered.items():
        changed = placed(copy, path)
        changed.write_text(without_entry(changed.read_text(), begins))
    named = [file.removeprefix("vinelm/").removesuffix(".py").replace("/", ".") for file in files]
    left = [path for path in sorted(copy.rglob("*.py*")) if any(f"vinelm.{name}" in path.read_text() for name in named)]
    assert left == []
    command = [sys.executable, "-c", SMOKE, str(copy), *(f"vinelm.{name}" for name in named)]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(copy), "PATH": ""}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
