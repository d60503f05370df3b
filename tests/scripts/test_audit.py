"""An audit that did not happen never reads as a clean one, and the SBOM lists what VineLM installs (`scripts/audit.py`)."""

import json
import re
import stat
import sys
import tomllib
from pathlib import Path

import audit
import pytest

ROOT = Path(__file__).parents[2]
CLICK = {"name": "click", "version": "8.5.1", "vulns": []}
UNKNOWN = {"name": "numpy", "skip_reason": "Dependency not found"}
FLAW = {"id": "PYSEC-2026-1", "fix_versions": ["8.5.2"], "aliases": [], "description": ""}
FLAWED = {**CLICK, "vulns": [FLAW]}


def program(path, body):
    path.write_text(f"#!{sys.executable} -IS\nimport sys\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def run(tmp_path):
    """Run the script on tools of our own: pip-audit writes the packages that it is given, or fails without a report."""

    def run(packages, *options):
        write = f"open(sys.argv[sys.argv.index('--output') + 1], 'w').write({json.dumps({'dependencies': packages})!r})"
        found = any(package.get("vulns") for package in packages or ())
        program(tmp_path / "pip-audit", "sys.exit('no network')" if packages is None else f"{write}\nsys.exit({int(found)})")
        bill = json.dumps({"metadata": {"component": {"name": "vinelm"}}, "components": []})
        program(tmp_path / "cyclonedx-py", f"open(sys.argv[sys.argv.index('--output-file') + 1], 'w').write({bill!r})")
        return audit.main(["--tools", str(tmp_path), "--sbom", str(tmp_path / "dist" / "sbom.json"), *options])

    return run


@pytest.mark.parametrize(
    ("packages", "code", "strict", "says"),
    [
        ([CLICK], 0, 0, "runtime.txt: 1 packages audited; no known vulnerability"),
        ([FLAWED, UNKNOWN], 1, 1, "click 8.5.1: PYSEC-2026-1, fixed in 8.5.2; not audited: numpy"),
        ([CLICK, UNKNOWN], 0, 1, "1 packages audited; no known vulnerability; not audited: numpy"),
        ([UNKNOWN], 0, 1, "runtime.txt: not audited: the vulnerability service gave no answer"),  # pip-audit says "clean" here
        ([], 0, 1, "runtime.txt: not audited: the vulnerability service gave no answer"),
        (None, 0, 1, "runtime.txt: not audited: the vulnerability service gave no answer"),
    ],
)
def test_what_was_not_audited_is_said_and_fails_a_strict_audit(run, capsys, packages, code, strict, says):
    assert run(packages) == code
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("requirements/runtime.txt") and says in line]
    installed = {file.name for file in (ROOT / "requirements").glob("*.txt")} - {"floors.txt"}  # the oldest: nobody installs it
    assert len(lines) == len(installed) + 1
    assert run(packages, "--strict") == strict


def test_the_sbom_lists_the_runtime_dependencies_and_nothing_else(tmp_path):
    tool = audit.TOOLS / "cyclonedx-py"
    if not (tool.is_file() and audit.RUNTIME.exists()):
        pytest.skip("make audit installs cyclonedx-py and the environment that it lists")
    from vinelm.version import __version__

    count = audit.write_sbom(tmp_path / "sbom.json", tool, audit.RUNTIME)
    bill = json.loads((tmp_path / "sbom.json").read_text())
    versions = {re.sub(r"[-_.]+", "-", part["name"]).lower(): part["version"] for part in bill["components"]}
    assert len(versions) == count
    assert bill["metadata"]["component"]["name"] == "vinelm"
    assert bill["metadata"]["component"]["version"] == __version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {re.split(r"[<>=]", line)[0] for line in project["dependencies"]} <= set(versions)
    locked = re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / "requirements" / "runtime.txt").read_text(), re.MULTILINE)
    assert set(versions.items()) <= set(locked)
