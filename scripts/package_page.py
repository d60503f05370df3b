"""What a package index shows of a release: addresses (`project.urls`), and a README whose links lead out of the index.

The address of the repository is known to whoever releases, so `scripts/release.py` takes it, and writes it into the exported
sources: a relative link of the README, right in the repository, would lead nowhere on the page of the package.
"""

from __future__ import annotations

import re
from pathlib import Path

PAGES = {"Documentation": "docs", "Changelog": "CHANGELOG.md", "Security": "SECURITY.md"}
"""Name of an address to its place in the repository."""
REPOSITORY = re.compile(r"https://[\w.-]+(/[\w.-]+)+")
_FENCE = re.compile(r"(^```.*?^```[^\n]*$)", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?P<before>(?P<image>!?)\[(?:[^\[\]]|!?\[[^\[\]]*\]\([^()\s]*\))*\]\()(?P<target>[^)\s]+)(?=[)\s])")
_ATTRIBUTE = re.compile(r"(?P<before>\b(?P<name>src|srcset|href)=\")(?P<target>[^\"\s]+)(?=[\"\s])")
_OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)


def add_package_page(source: Path, repository: str, tag: str) -> list[Path]:
    """Write the addresses and the README's links into exported sources; returns the files that it changed.

    Args:
        source: The folder with `pyproject.toml` and the README that this names.
        repository: The address of the repository, which serves files at `/blob/TAG/` and pictures at `/raw/TAG/`.
        tag: The tag of the release.
    """
    project = source / "pyproject.toml"
    project.write_text(with_urls(project.read_text(encoding="utf-8"), repository, tag), encoding="utf-8")
    readme = source / "README.md"
    if not readme.is_file():
        return [project]
    readme.write_text(with_whole_links(readme.read_text(encoding="utf-8"), repository, tag), encoding="utf-8")
    return [project, readme]


def with_urls(project: str, repository: str, tag: str) -> str:
    """The text of a `pyproject.toml`, with the table `project.urls` at its end."""
    places = {"Repository": repository} | {name: f"{repository}/blob/{tag}/{place}" for name, place in PAGES.items()}
    return "\n".join([project.rstrip("\n"), "", "[project.urls]", *(f'{name} = "{url}"' for name, url in places.items()), ""])


def with_whole_links(text: str, repository: str, tag: str) -> str:
    """The text of a README, its relative links made whole, those of HTML included; blocks of code stay as they are."""

    def whole(found: re.Match[str]) -> str:
        target = found["target"]
        if _OUTSIDE.match(target):
            return found[0]
        is_picture = found.groupdict().get("image") == "!" or found.groupdict().get("name") in ("src", "srcset")
        place = f"README.md{target}" if target.startswith("#") else target.removeprefix("./")
        return f"{found['before']}{repository}/{'raw' if is_picture else 'blob'}/{tag}/{place}"

    def linked(piece: str) -> str:
        inner = re.sub(r"(?<=\[)!\[[^\]]*\]\([^)\s]+\)", lambda picture: _LINK.sub(whole, picture[0]), piece)
        return _ATTRIBUTE.sub(whole, _LINK.sub(whole, inner))

    return "".join(piece if piece.startswith("```") else linked(piece) for piece in _FENCE.split(text))
