"""What is installed is what is here, and it runs from an empty folder (docs/architecture.md#layers)."""

import itertools
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections import defaultdict
from functools import cache
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

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


HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
LOCKED = ("audit", "build", "demo", "dev", "docs", "floors", "ray", "runtime", "serve")


def pins_of(text):
    """Requirement with its marker -> its hashes; raises on whatever else a requirements file may contain."""
    pins = {}
    lines = (line for line in text.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#"))
    for line in lines:
        requirement, *hashes = re.split(r"\s+(?=--)", line.strip())
        bad = [piece for piece in hashes if not HASH.fullmatch(piece)]
        if bad or not hashes or not re.fullmatch(r"[a-z0-9-]+(\[[a-z0-9,-]+\])?==[^\s;/:@]+( ; [^/:@]+)?", requirement):
            raise ValueError(line[:100])
        pins[requirement] = set(hashes)
    return pins


@cache
def locked(name):
    return pins_of((ROOT / "requirements" / f"{name}.txt").read_text())


def names(requirements):
    """Canonical names; VineLM's own extras are requirements of `dev` on itself."""
    found = {re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-") for requirement in requirements}
    return found - {"vinelm"}


def test_every_locked_file_has_pins_and_hashes_and_nothing_else():
    assert {path.stem for path in (ROOT / "requirements").iterdir()} == set(LOCKED)
    for name in LOCKED:
        assert locked(name)
        assert "://" not in (ROOT / "requirements" / f"{name}.txt").read_text()


@pytest.mark.parametrize(
    "line",
    [
        "click==8.5.1",
        "click>=8.1 --hash=sha256:" + "0" * 64,
        "click==8.5.1 --hash=sha256:" + "0" * 63,
        "click==8.5.1 --hash=md5:" + "0" * 32,
        "click==8.5.1 --hash=sha256:" + "0" * 64 + " --index-url x",
        "--index-url https://example.org/simple",
        "--extra-index-url=x",
        "-i x",
        "-r other.txt",
        "-e .",
        "click @ https://example.org/click.whl --hash=sha256:" + "0" * 64,
    ],
)
def test_a_pin_without_a_hash_an_option_and_an_address_are_refused(line):
    assert pins_of("# comment\nclick==8.5.1 ; python_version < '3.12' \\\n    --hash=sha256:" + "0" * 64)
    with pytest.raises(ValueError, match=re.escape(line[:100])):
        pins_of(line)


def test_the_locked_files_pin_every_dependency():
    extras = PROJECT["project"]["optional-dependencies"]
    assert not any("sglang" in requirement for requirement in extras["dev"])  # its pins would be everybody's, CUDA included
    assert "sglang" not in names(locked("dev"))
    extras_of_dev = (extras[name] for name in extras if name not in ("ray", "real", "sglang"))
    extras_of_demo = [extras[name] for name in ("report", "demo")]
    wanted = {
        "runtime": PROJECT["project"]["dependencies"],
        "demo": [*PROJECT["project"]["dependencies"], *itertools.chain(*extras_of_demo)],
        "floors": [*PROJECT["project"]["dependencies"], *itertools.chain(*extras_of_demo)],
        "dev": [*PROJECT["project"]["dependencies"], *itertools.chain(*extras_of_dev)],
        "ray": [*PROJECT["project"]["dependencies"], *extras["ray"]],
        "build": PROJECT["build-system"]["requires"],
        "serve": [
            *PROJECT["project"]["dependencies"],
            *itertools.chain(*(extras[name] for name in ("demo", "fleet", "gateway", "metrics", "postgres"))),
        ],
        **{name: PROJECT["dependency-groups"][name] for name in ("audit", "docs")},
    }
    for name in LOCKED:
        missing = names(wanted[name]) - names(locked(name))
        assert not missing, f"requirements/{name}.txt does not pin {missing}: run `make lock`"


def test_the_lowest_versions_that_are_declared_are_those_that_are_tried():
    extras = PROJECT["project"]["optional-dependencies"]
    declared = [
        *PROJECT["project"]["dependencies"],
        *itertools.chain(*(extras[name] for name in ("report", "demo"))),
    ]
    lowest = {one.name: one.specifier for one in map(Requirement, declared) if one.name != "vinelm"}
    tried = {Requirement(pin).name: pin.partition(" ;")[0].partition("==")[2] for pin in reversed(locked("floors"))}
    for name, specifier in lowest.items():
        (floor,) = (one.version for one in specifier if one.operator == ">=")
        assert Version(tried[name]) == Version(floor), f"{name}: run `make lock`"


def test_a_library_that_another_needs_with_an_extra_is_pinned_with_it():
    """For pip, `a[x]` is another requirement than a pinned `a`: it looks for the newest one, and finds no hash for it."""
    pinned = [Requirement(pin) for pin in locked("dev")]
    extras = {canonicalize_name(one.name): set(map(canonicalize_name, one.extras)) for one in pinned}
    wanted = defaultdict(set)
    for one in pinned:
        for needed in map(Requirement, requires(one.name) or () if one.marker is None or one.marker.evaluate() else ()):
            chosen = [{"extra": extra} for extra in ("", *one.extras)]
            if needed.marker is None or any(needed.marker.evaluate(environment) for environment in chosen):
                wanted[canonicalize_name(needed.name)] |= set(map(canonicalize_name, needed.extras))
    assert any(wanted.values())
    assert {name: extra - extras[name] for name, extra in wanted.items() if name in extras and extra - extras[name]} == {}


def test_users_tests_and_the_build_have_the_same_versions():
    """The files are installed one after the other into one environment: a second one must change nothing of the first."""
    versions = {}
    for name in ("dev", "demo", "ray", "runtime", "build", "serve"):
        for requirement, hashes in locked(name).items():
            pin = requirement.partition(" ;")[0]
            assert versions.setdefault(pin, hashes) == hashes
            assert name in ("dev", "ray") or pin in {other.partition(" ;")[0] for other in locked("dev")}, (
                f"run `make lock`: {pin}"
            )


def test_setup_installs_nothing_without_a_hash():
    """Every call of pip in the Makefile has --require-hashes, or takes nothing but VineLM itself."""
    text = (ROOT / "Makefile").read_text()
    assert re.search(r"^LOCKED := .*--require-hashes$", text, re.MULTILINE)
    calls = [line for line in text.splitlines() if line.startswith("\t") and ("$(PIP)" in line or "pip install" in line)]
    itself = [line for line in calls if "$(LOCKED)" not in line]
    assert len(calls) > len(itself) == 3  # into the environments of work, of the documentation and of the lowest versions
    assert all("--no-deps --no-build-isolation -e ." in line for line in itself)


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


def test_the_wheel_holds_the_data_of_the_workflows(wheel):
    files = subprocess.run(["git", "ls-files", "workflows/*/data/*"], cwd=ROOT, capture_output=True, text=True, check=True)
    wanted = {f"vinelm/{name}" for name in files.stdout.splitlines()}
    assert len(wanted) > 10
    assert wanted - set(zipfile.ZipFile(wheel).namelist()) == set()


def test_the_wheel_runs_in_a_fresh_environment_from_an_empty_folder(wheel, tmp_path):
    """A fresh venv gets the wheel alone; the libraries it needs are lent by the running environment's site-packages."""
    home = tmp_path / "venv"
    venv.create(home)  # without pip: another environment's can install there
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    installed = subprocess.run(
        [*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], capture_output=True, text=True, check=False
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
