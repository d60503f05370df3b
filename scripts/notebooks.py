"""Run the notebooks of docs/notebooks and write what their cells show; --check compares instead.

Runs in the environment of the documentation, which `make docs` makes. A notebook runs in a fresh kernel, from the first to the
last cell; a cell that raises ends the script. Compared is what a reader sees: printed text and the text form of results.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "notebooks"
TIMEOUT_S = 300


def run(path: Path) -> Any:
    """The notebook with the outputs of today, without what differs from run to run."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=TIMEOUT_S, resources={"metadata": {"path": str(FOLDER)}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return notebook


def shown(notebook: Any) -> list[str]:
    """What the cells show, one text for each output."""
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return [output.text if output.output_type == "stream" else output.data["text/plain"] for output in outputs]


def main() -> int:
    """Write the notebooks, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a notebook shows something else today")
    is_check = parser.parse_args().check
    stale = []
    for path in sorted(FOLDER.glob("*.ipynb")):
        made = run(path)
        if shown(made) != shown(nbformat.read(path, as_version=4)):
            stale.append(path.name)
        if not is_check:
            nbformat.write(made, path)
    for name in stale:
        print(f"{name}: {'shows something else today: run scripts/notebooks.py' if is_check else 'written'}")
    return 1 if stale and is_check else 0


if __name__ == "__main__":
    sys.exit(main())
