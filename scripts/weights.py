"""What VineLM weighs: install sizes of the core and of each extra, import times, wheel size, size and time of a report.

    python scripts/weights.py                                          # a table
    python scripts/weights.py --json                                   # one object
    python scripts/weights.py --results results/weights.json --as after

The wheel of the commit is built and installed into two fresh environments by pip, at the versions of requirements/dev.txt: once
without extras, once with all but `ray`, `sglang`, `dev`. A size is the sum of the files that pip wrote, with bytecode, in MB of
10^6 bytes. Seconds are the least of several fresh processes. --root measures another checkout. Takes minutes, and the network.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping, Sequence, Set
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from release import ROOT, build, git
from studies import Options, study

HEAVIEST = 10
LEFT_OUT = ("dev", "ray", "sglang")
"""Not measured: the tools of development, and an engine with CUDA that needs an environment of its own."""
IMPORTS = """
import json, time
wall, processor = time.perf_counter(), time.process_time()
import langgraph.graph
between, used = time.perf_counter(), time.process_time()
from vinelm import VineLM
print(json.dumps([between - wall, used - processor, time.perf_counter() - between, time.process_time() - used]))
"""


class Installed:
    """The packages of an environment, each with its size and with what it needs."""

    def __init__(self, home: Path) -> None:
        self.python = home / "bin" / "python"
        (site,) = (home / "lib").glob("python3*/site-packages")
        found = list(distributions(path=[str(site)]))
        self._packages: dict[str, Distribution] = {canonicalize_name(one.metadata["Name"]): one for one in found}
        self.mb = {name: _size_mb(one) for name, one in self._packages.items()}

    @property
    def extras(self) -> list[str]:
        """The extras of VineLM that are measured."""
        named = self._packages["vinelm"].metadata.get_all("Provides-Extra") or []
        return sorted(set(named) - set(LEFT_OUT))

    def closure(self, extra: str = "") -> set[str]:
        """The packages that `vinelm`, or `vinelm[extra]`, brings along, itself included."""
        seen: set[tuple[str, str]] = set()
        open_ = [("vinelm", ""), ("vinelm", extra)]
        while open_:
            if (pair := open_.pop()) not in seen:
                seen.add(pair)
                open_ += self._needs(*pair)
        return {name for name, _ in seen}

    def _needs(self, name: str, extra: str) -> Iterator[tuple[str, str]]:
        for line in self._packages[name].requires or ():
            need = Requirement(line)
            if need.marker is None or need.marker.evaluate({"extra": extra}):
                yield from ((canonicalize_name(need.name), wanted) for wanted in ("", *need.extras))

    def sizes(self, names: set[str], beside: Set[str] = frozenset()) -> dict[str, Any]:
        """Sum of the sizes, number of packages, and the heaviest of them that are not among those ``beside``."""
        heaviest = sorted(names - beside, key=lambda name: -self.mb[name])[:HEAVIEST]
        return {
            "mb": round(sum(self.mb[name] for name in names), 1),
            "added_mb": round(sum(self.mb[name] for name in names - beside), 1),
            "packages": len(names),
            "heaviest": {name: round(self.mb[name], 1) for name in heaviest},
        }


def _size_mb(package: Distribution) -> float:
    paths = (Path(str(package.locate_file(file))) for file in package.files or ())
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


def install(wheel: Path, extras: Sequence[str], home: Path, pins: Path) -> Installed:
    """Install the wheel into a fresh environment, and return what is in it."""
    venv.create(home, with_pip=False)
    what = f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install", "-qq"]
    subprocess.run([*pip, "--disable-pip-version-check", "--constraint", str(pins), what], check=True)
    return Installed(home)


def locked(root: Path) -> str:
    """The versions of requirements/dev.txt without their hashes, as pip's constraints: a wheel of our own has no hash there."""
    text = (root / "requirements" / "dev.txt").read_text(encoding="utf-8").replace("\\\n", " ")
    return "\n".join(re.sub(r"\s+--hash=\S+", "", line) for line in text.splitlines())


def import_times(python: Path, repeats: int) -> dict[str, float]:
    """Seconds of LangGraph's import, and of `from vinelm import VineLM` after it; the least of fresh processes."""
    rows = [_child([python, "-c", IMPORTS]) for _ in range(repeats)]
    least = [round(min(column), 3) for column in zip(*(json.loads(row) for row in rows), strict=True)]
    return dict(zip(("langgraph_s", "langgraph_cpu_s", "vinelm_s", "vinelm_cpu_s"), least, strict=True))


def _child(command: Sequence[str | Path]) -> str:
    """What a process prints that runs in an empty folder: in a checkout, the sources would be imported."""
    with tempfile.TemporaryDirectory() as empty:
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=empty).stdout


def seconds_of(command: Sequence[str | Path], repeats: int) -> dict[str, float]:
    """Seconds of a command, process start included, by the clock and of the processor; the least of several runs each."""
    taken = []
    for _ in range(repeats):
        start, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        _child(command)
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
        taken.append((time.perf_counter() - start, cpu_s))
    seconds, cpu_s = (round(min(column), 3) for column in zip(*taken, strict=True))
    return {"seconds": seconds, "cpu_s": cpu_s}


def report_weight(python: Path, folder: Path, repeats: int) -> dict[str, float]:
    """Size and time of the report of a small simulated profile."""
    vinelm, store, trie = python.with_name("vinelm"), folder / "weights.db", folder / "weights.vine"
    _child([vinelm, "profile", "nl2sql", "--store", store, "--isolation", "inline", "--quiet"])
    _child([vinelm, "estimate", store, "-o", trie, "--quiet"])
    took = seconds_of([vinelm, "report", store, trie, "-o", folder, "--quiet"], repeats)
    return {"kb": round((folder / "report.html").stat().st_size / 1e3, 1), **took}


def measure(root: Path, repeats: int) -> dict[str, Any]:
    """Build, install and measure the commit of a checkout."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (pins := folder / "pins.txt").write_text(locked(root), encoding="utf-8")
        wheel = next(path for path in build(root, folder / "dist") if path.suffix == ".whl")
        core = install(wheel, (), folder / "core", pins)
        full = install(wheel, core.extras, folder / "full", pins)
        return {
            "commit": git(root, "rev-parse", "HEAD").decode().strip(),
            "python": sys.version.split()[0],
            "wheel_kb": round(wheel.stat().st_size / 1e3, 1),
            "core": core.sizes(set(core.mb)),
            "extras": {extra: full.sizes(full.closure(extra), full.closure()) for extra in full.extras},
            "everything": full.sizes(set(full.mb), full.closure()),
            "imports": import_times(core.python, repeats),
            "help": seconds_of([core.python.with_name("vinelm"), "--help"], repeats),
            "report": report_weight(full.python, folder, 2),
        }


def show(found: Mapping[str, Any]) -> None:
    """Print what was measured as a table; seconds are of the processor."""
    imports, report = found["imports"], found["report"]
    print(f"wheel {found['wheel_kb']:.0f} kB; report {report['kb']:.0f} kB in {report['cpu_s']:.1f} s")
    print(f"import: LangGraph {imports['langgraph_cpu_s']:.2f} s, VineLM {imports['vinelm_cpu_s']:.2f} s more")
    print(f"vinelm --help: {found['help']['cpu_s']:.2f} s")
    for name, sizes in {"core": found["core"], **found["extras"], "everything": found["everything"]}.items():
        heaviest = ", ".join(f"{package} {mb:.0f}" for package, mb in list(sizes["heaviest"].items())[:5])
        print(f"{name:12} {sizes['mb']:6.0f} MB {sizes['packages']:4} packages: {heaviest}")


def main() -> int:
    """Measure, and print or keep the figures."""
    options = {
        "--root": (ROOT, "the checkout to measure; its commit, not its changes", {"type": Path}),
        "--as": ("after", "the name of the figures in the file, beside those that it has", {"dest": "label"}),
        "--repeats": (15, "processes for each time"),
    }

    def measured(given: Options) -> dict[str, Any]:
        kept = given.results is not None and given.results.is_file() and json.loads(given.results.read_text(encoding="utf-8"))
        beside = {name: one for name, one in (kept or {}).items() if isinstance(one, dict)}
        return {**beside, given.label: measure(given.root.resolve(), given.repeats)}

    return study(__doc__, options, measured, lambda found: show(list(found.values())[-1]))


if __name__ == "__main__":
    sys.exit(main())
