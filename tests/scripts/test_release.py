"""Two builds of a commit are the same bytes, and have what git has and nothing else (`scripts/release.py`)."""

import os
import re
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
import release

ROOT = Path(__file__).parents[2]
PROJECT = """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"
[project]
name = "vinelm"
readme = "README.md"
dynamic = ["version"]
[tool.setuptools]
packages = ["vinelm"]
[tool.setuptools.dynamic]
version = { attr = "vinelm.version.__version__" }
"""
PLACE = "https://example.org/vines/vinelm"
README = """# VineLM

See [the docs](docs/a.md#part), [below](#results), [![a picture](docs/a.svg)](./docs), [elsewhere](https://example.org/x).
<img alt="x" src="docs/b.png"> ![plain](c.svg "title")

```
[not a link](docs/a.md)
```
"""
pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def git(folder, *arguments):
    person = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "tag.gpgsign=false", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *person, "-C", str(folder), *arguments], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "first"
    (folder / "vinelm").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "README.md").write_text(README)
    (folder / ".gitignore").write_text("dist/\nbuild/\n")
    (folder / "vinelm" / "__init__.py").write_text("")
    (folder / "vinelm" / "version.py").write_text('__version__ = "1.2.3"\n')
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "first")
    git(folder, "tag", "v1.2.3")
    return folder


@pytest.mark.long
def test_a_second_build_elsewhere_gives_the_same_bytes(checkout, tmp_path):
    second = tmp_path / "second"
    git(tmp_path, "clone", "--quiet", str(checkout), str(second))
    left = second / "build" / "lib" / "vinelm" / "left.py"  # an old build folder, which setuptools packs again
    left.parent.mkdir(parents=True)
    left.write_text("")
    for path in second.rglob("vinelm/*.py"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
        path.chmod(0o600)
    git(second, "config", "core.fileMode", "false")
    for folder in (checkout, second):
        assert release.main(["--root", str(folder), "--repository", PLACE]) == 0
    built = {path.name: path.read_bytes() for path in (checkout / "dist").iterdir()}
    assert sorted(built) == ["BUILDINFO.json", "SHA256SUMS", "vinelm-1.2.3-py3-none-any.whl", "vinelm-1.2.3.tar.gz"]
    assert {path.name: path.read_bytes() for path in (second / "dist").iterdir()} == built
    for line in built["SHA256SUMS"].decode().splitlines():
        digest, name = line.split("  ")
        assert release.sha256(second / "dist" / name) == digest
    with zipfile.ZipFile(second / "dist" / "vinelm-1.2.3-py3-none-any.whl") as wheel:
        metadata = wheel.read("vinelm-1.2.3.dist-info/METADATA").decode()
        assert {name for name in wheel.namelist() if name.startswith("vinelm/")} == {"vinelm/__init__.py", "vinelm/version.py"}
    with tarfile.open(second / "dist" / "vinelm-1.2.3.tar.gz") as archive:
        assert {(member.uid, member.uname) for member in archive} == {(0, "")}
    assert f"Project-URL: Repository, {PLACE}\n" in metadata
    assert f"Project-URL: Changelog, {PLACE}/blob/v1.2.3/CHANGELOG.md\n" in metadata
    assert f"[the docs]({PLACE}/blob/v1.2.3/docs/a.md#part)" in metadata


def test_links_of_the_package_page_are_whole():
    from package_page import with_whole_links

    blob, raw = f"{PLACE}/blob/v1", f"{PLACE}/raw/v1"
    assert (
        with_whole_links(README, PLACE, "v1")
        == f"""# VineLM

See [the docs]({blob}/docs/a.md#part), [below]({blob}/README.md#results), [![a picture]({raw}/docs/a.svg)]({blob}/docs), \
[elsewhere](https://example.org/x).
<img alt="x" src="{raw}/docs/b.png"> ![plain]({raw}/c.svg "title")

```
[not a link](docs/a.md)
```
"""
    )
    own = with_whole_links((ROOT / "README.md").read_text(), PLACE, "v1")
    prose = re.sub(r"^```.*?^```", "", own, flags=re.DOTALL | re.MULTILINE)
    targets = re.findall(r"\]\(([^)\s]+)", prose) + re.findall(r"(?:src|href)=\"([^\"\s]+)", prose)
    assert len(targets) > 20
    assert all(target.startswith("https://") for target in targets)


@pytest.mark.parametrize("place", ["", "here", "http://example.org/vines/vinelm", "https://example.org"])
def test_a_release_needs_the_address_of_the_repository(checkout, capsys, place):
    assert release.main(["--root", str(checkout), "--repository", place]) == 1
    assert capsys.readouterr().err.endswith("is no address of a repository: give one as https://HOST/OWNER/NAME\n")
    assert not (checkout / "dist").exists()


def test_a_changed_or_untagged_checkout_is_no_release(checkout, capsys):
    (checkout / "new.py").write_text("")
    assert release.main(["--root", str(checkout), "--repository", PLACE]) == 1
    assert capsys.readouterr().err == "no release: 1 files differ from the commit (git status): commit or remove them\n"
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--message", "second")
    assert release.main(["--root", str(checkout), "--repository", PLACE]) == 1
    assert capsys.readouterr().err == "no release: the commit has no tag v1.2.3: git tag -s v1.2.3\n"
    assert not (checkout / "dist").exists()
