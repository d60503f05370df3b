"""A notebook as a page: its text, its code and what its cells printed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def notebook_page(path: Path) -> str:
    """The page of a notebook, with a link to the notebook itself under its title."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    pieces = [piece for cell in cells for piece in _pieces(cell)]
    note = f"[Download this notebook]({path.name}). What the cells print is what they printed when it was last run."
    return "\n\n".join([pieces[0], note, *pieces[1:]]) + "\n"


def _pieces(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"]).strip()
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        yield _shown(output)


def _shown(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return _block("".join(output["text"]))
    data = output["data"]
    if "text/html" in data:
        return f'<div class="cell-output" markdown="0">\n{"".join(data["text/html"])}\n</div>'
    return _block("".join(data["text/plain"]))


def _block(text: str) -> str:
    return f"```{{.text .cell-output}}\n{text.rstrip()}\n```"
