"""Audit what a release depends on: known vulnerabilities of the locked packages, and a bill of materials (SBOM).

`make audit` installs pip-audit and cyclonedx-py into `build/audit/tools`, and the runtime libraries alone into
`build/audit/runtime`. This script asks a public vulnerability service about each file of `requirements/` (network), and writes
`dist/sbom.cdx.json` (CycloneDX). Exit code 1: a package has a known vulnerability, or, with --strict, one was not audited.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vinelm.version import __version__

ROOT = Path(__file__).parents[1]
TOOLS = ROOT / "build" / "audit" / "tools" / "bin"
RUNTIME = ROOT / "build" / "audit" / "runtime" / "bin" / "python"
SBOM = ROOT / "dist" / "sbom.cdx.json"


@dataclass(frozen=True)
class Finding:
    """What is known about the packages of one locked file."""

    locked: Path
    audited: int = 0
    skipped: tuple[str, ...] = ()
    vulnerable: tuple[str, ...] = ()
    unanswered: bool = False
    """The tool wrote no report: its vulnerability service could not be reached, or it failed."""

    @property
    def complete(self) -> bool:
        """Whether every package was looked up."""
        return not self.unanswered and not self.skipped and self.audited > 0

    def __str__(self) -> str:
        """One line for the user."""
        name = f"{self.locked.parent.name}/{self.locked.name}"
        if self.unanswered or not self.audited:
            return f"{name}: not audited: the vulnerability service gave no answer"
        parts = [f"{name}: {self.audited} packages audited", "; ".join(self.vulnerable) or "no known vulnerability"]
        if self.skipped:
            parts.append(f"not audited: {', '.join(self.skipped)}")
        return "; ".join(parts)


def read_report(locked: Path, report: dict[str, Any]) -> Finding:
    """The finding in a JSON report of pip-audit, which calls a file clean although the service knew none of its packages."""
    packages = report["dependencies"]
    return Finding(
        locked,
        audited=sum("skip_reason" not in package for package in packages),
        skipped=tuple(package["name"] for package in packages if "skip_reason" in package),
        vulnerable=tuple(
            f"{package['name']} {package['version']}: {flaw['id']}, fixed in {', '.join(flaw['fix_versions']) or 'no version'}"
            for package in packages
            for flaw in package.get("vulns", ())
        ),
    )


def audit(locked: Path, tool: Path) -> Finding:
    """Ask the vulnerability service about each package of a locked file; uses the network.

    pip-audit exits with 1 both where it finds something and where it fails, but writes its report in the first case only.
    """
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "report.json"
        options = ["--require-hashes", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
        command = [str(tool), *options, "--requirement", str(locked), "--output", str(target)]
        subprocess.run(command, capture_output=True, check=False)
        return read_report(locked, json.loads(target.read_text())) if target.is_file() else Finding(locked, unanswered=True)


def write_sbom(target: Path, tool: Path, python: Path) -> int:
    """Write the CycloneDX bill of materials of an environment, and return the number of its components."""
    target.parent.mkdir(parents=True, exist_ok=True)
    options = ["--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "library", "--output-reproducible"]
    subprocess.run([str(tool), "environment", *options, "--output-file", str(target), str(python)], check=True)
    bill = json.loads(target.read_text())
    bill["metadata"]["component"]["version"] = __version__  # dynamic in pyproject.toml, so the tool leaves it out
    target.write_text(json.dumps(bill, indent=2) + "\n")
    return len(bill["components"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Audit, write the SBOM, print one line for each, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strict", action="store_true", help="exit with 1 where a package could not be audited")
    parser.add_argument("--tools", type=Path, default=TOOLS, help="folder of pip-audit and cyclonedx-py")
    parser.add_argument("--runtime", type=Path, default=RUNTIME, help="interpreter of the environment that the SBOM lists")
    parser.add_argument("--sbom", type=Path, default=SBOM, help="file to write")
    args = parser.parse_args(arguments)
    installed = [file for file in sorted((ROOT / "requirements").glob("*.txt")) if file.name != "floors.txt"]  # old on purpose
    findings = [audit(locked, args.tools / "pip-audit") for locked in installed]
    print(*findings, sep="\n")
    print(f"{os.path.relpath(args.sbom)}: {write_sbom(args.sbom, args.tools / 'cyclonedx-py', args.runtime)} components")
    if any(finding.vulnerable for finding in findings):
        return 1
    return int(args.strict and not all(finding.complete for finding in findings))


if __name__ == "__main__":
    sys.exit(main())
