"""What is installed is what is here, and it runs from an empty folder (docs/architecture.md#layers)."""

import itertools
import os
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PARTS = ("controller", "estimator", "profiler", "traces", "workflows")


def test_the_package_list_is_the_folders():
    found = set()
    for top in ("vinelm", *PARTS):
        for init in (ROOT / top).rglob("__init__.py"):
            pieces = init.parent.relative_to(ROOT).parts
            found.add(".".join(pieces if top == "vinelm" else ("vinelm", *pieces)))
    assert found == set(PROJECT["tool"]["setuptools"]["packages"])


def test_every_mapped_folder_is_a_package():
    for folder in PROJECT["tool"]["setuptools"]["package-dir"].values():
        assert (ROOT / folder / "__init__.py").is_file()


def test_constraints_pin_every_dependency_and_name_no_host():
    text = (ROOT / "constraints.txt").read_text()
    assert "://" not in text
    assert "--" not in text
    pinned = {line.split("==")[0].lower() for line in text.splitlines() if "==" in line}
    extras = PROJECT["project"]["optional-dependencies"]
    assert not any("sglang" in requirement for requirement in extras["dev"])  # its pins would be everybody's, CUDA included
    assert "sglang" not in pinned
    pinned_extras = (extras[name] for name in extras if name != "sglang")
    wanted = [*PROJECT["project"]["dependencies"], *itertools.chain(*pinned_extras)]
    for requirement in wanted:
        name = requirement.split(">")[0].split("[")[0].split(";")[0].strip().lower()
        assert name == "vinelm" or name in pinned, f"{name} is not pinned: run `make constraints`"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("vinelm", *PARTS):  # a copy: an old build/ folder in the checkout would leak into the wheel
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(target.glob("*.whl"))


@pytest.mark.slow
def test_the_wheel_runs_in_a_fresh_environment_from_an_empty_folder(wheel, tmp_path):
    """A fresh venv gets the wheel alone; the libraries it needs are lent by the running environment's site-packages."""
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    installed = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert installed.returncode == 0, installed.stderr
    lent = [path for path in sys.path if path.endswith("site-packages")]
    site = next((home / "lib").glob("python3*/site-packages"))
    (site / "lent.pth").write_text("\n".join(lent) + "\n")
    empty = tmp_path / "empty"
    empty.mkdir()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    code = (
        "import importlib, pathlib, vinelm\n"
        f"packages = {PROJECT['tool']['setuptools']['packages']!r}\n"
        "for name in packages:\n"
        "    home = pathlib.Path(importlib.import_module(name).__file__)\n"
        f"    assert pathlib.Path({str(home)!r}) in home.parents, home\n"
        "from vinelm.catalog import bundled_prices\n"
        "assert bundled_prices()\n"
    )
    for command in ([python, "-c", code], [home / "bin" / "vinelm", "--help"]):
        done = subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert not list(empty.iterdir())
