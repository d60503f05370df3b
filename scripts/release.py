"""Build the files of a release from the tagged commit, so that anybody who builds the commit again gets the same bytes.

What git has at the commit is exported into an empty folder and built there, with the time of the commit as the time of every
file: no untracked file, old build folder, umask or clock of this machine reaches the wheel or the source archive. --repository
is the address that the page of the package links to, and the README's links with it (`package_page.py`). Writes both archives
into `dist/`, with `BUILDINFO.json` (commit, interpreter, build tools, hashes of the locked files) and `SHA256SUMS`. Uploads
nothing.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import importlib.metadata
import io
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from package_page import REPOSITORY, add_package_page

ROOT = Path(__file__).parents[1]
SBOM = "sbom.cdx.json"
SUMS = "SHA256SUMS"


def git(root: Path, *arguments: str) -> bytes:
    """What a git command prints."""
    return subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True).stdout


def refusal(root: Path, version: str, repository: str) -> str | None:
    """Why the checkout is not a release of this version, or None."""
    if not REPOSITORY.fullmatch(repository):
        return f"{repository!r} is no address of a repository: give one as https://HOST/OWNER/NAME"
    if changed := git(root, "status", "--porcelain").decode().splitlines():
        return f"{len(changed)} files differ from the commit (git status): commit or remove them"
    if f"v{version}" not in git(root, "tag", "--points-at", "HEAD").decode().split():
        return f"the commit has no tag v{version}: git tag -s v{version}"
    return None


FILTER: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Python 3.11 has it from 3.11.4 on. What is extracted is our own."""


def export(root: Path, target: Path) -> int:
    """Extract what git has at HEAD with fixed modes and times; returns the time of the commit, in seconds since 1970."""
    with tarfile.open(fileobj=io.BytesIO(git(root, "archive", "--format=tar", "HEAD"))) as archive:
        archive.extractall(target, **FILTER)
    return int(git(root, "log", "-1", "--format=%ct"))


def normalize(archive: Path, time: int) -> None:
    """Rewrite a source archive: setuptools leaves the present time and the user's name in it."""
    plain = io.BytesIO()
    with tarfile.open(archive) as old, tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname, member.pax_headers = time, 0, 0, "", "", {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    archive.write_bytes(gzip.compress(plain.getvalue(), mtime=time))


def build(root: Path, dist: Path, repository: str = "") -> list[Path]:
    """Build wheel and source archive of HEAD with the installed, locked build tools; returns the two files in `dist`.

    With the address of a repository they are those of a release, else without addresses and with the README as it is.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "source", Path(folder) / "made"
        time = export(root, source)
        for path in add_package_page(source, repository, f"v{version_of(root)}") if repository else ():
            os.utime(path, (time, time))
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(made), str(source)]
        variables = {**os.environ, "SOURCE_DATE_EPOCH": str(time)}
        subprocess.run(command, check=True, env=variables, umask=0o022, stdout=subprocess.DEVNULL)
        for archive in made.glob("*.tar.gz"):
            normalize(archive, time)
        dist.mkdir(exist_ok=True)
        return [
            (dist / path.name).absolute()
            for path in sorted(made.iterdir())
            if (dist / path.name).write_bytes(path.read_bytes())
        ]


def sha256(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def build_info(root: Path, version: str, repository: str) -> dict[str, object]:
    """From what, and with what, the release was built: what somebody needs to build it again."""
    return {
        "version": version,
        "repository": repository,
        "commit": git(root, "rev-parse", "HEAD").decode().strip(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "zlib": zlib.ZLIB_RUNTIME_VERSION,
        "platform": f"{platform.system()} {platform.machine()}",
        "build_tools": {name: importlib.metadata.version(name) for name in ("build", "setuptools")},
        "requirements": {path.name: sha256(path) for path in sorted((root / "requirements").glob("*.txt"))},
    }


def version_of(root: Path) -> str:
    """The version in `vinelm/version.py`, of the given checkout and not of the installed package."""
    found = re.search(r'__version__ = "(.+)"', (root / "vinelm" / "version.py").read_text())
    assert found is not None
    return found[1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the release or say why not, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT, help="checkout of the tag")
    parser.add_argument("--repository", default="", help="where the repository is: https://HOST/OWNER/NAME")
    given = parser.parse_args(arguments)
    root, repository = given.root, given.repository.rstrip("/")
    version = version_of(root)
    if reason := refusal(root, version, repository):
        print(f"no release: {reason}", file=sys.stderr)
        return 1
    dist = root / "dist"
    files = build(root, dist, repository)
    info = dist / "BUILDINFO.json"
    info.write_text(json.dumps(build_info(root, version, repository), indent=2) + "\n")
    files += [path for path in (info, dist / SBOM) if path.is_file()]
    (dist / SUMS).write_text("".join(f"{sha256(path)}  {path.name}\n" for path in files))
    print((dist / SUMS).read_text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
