"""Draw the packages and their imports into docs/architecture.md; with --check, only say whether the picture is fresh."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from house import HERE, House, mermaid

PAGE = HERE / "docs" / "architecture.md"
PICTURE = re.compile(r"(?<=-->\n)```mermaid\n.*?```(?=\n<!-- end of rooms -->)", re.DOTALL)


def page(root: Path = HERE) -> str:
    """The page with the picture of today's imports."""
    picture = f"```mermaid\n{mermaid(House(root))}\n```"
    return PICTURE.sub(lambda _: picture, PAGE.read_text(encoding="utf-8"))


def main() -> int:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 if the picture is stale")
    fresh = page()
    if not parser.parse_args().check:
        PAGE.write_text(fresh, encoding="utf-8")
        return 0
    is_fresh = PAGE.read_text(encoding="utf-8") == fresh
    print(f"{PAGE.name} is {'fresh' if is_fresh else 'stale: run scripts/architecture_picture.py'}")
    return 0 if is_fresh else 1


if __name__ == "__main__":
    sys.exit(main())
