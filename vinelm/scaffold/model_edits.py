"""The edit of an application that lets VineLM make its chat models."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable
from pathlib import Path

from vinelm.scaffold.model_calls import ModelCall, lines_of, text_of


def edited(path: Path, calls: Iterable[ModelCall], models_file: str, *, is_named: bool = False) -> str:
    """Return the source of a file in which VineLM makes the models of ``calls``.

    Args:
        path: The file.
        calls: Those of this file.
        models_file: The catalog, as the file will name it.
        is_named: Name the stages, as code without a graph needs: there is no node whose name they could have.
    """
    before = text = text_of(path)
    wanted = sorted(calls, key=lambda one: one.start, reverse=True)
    for call in wanted:
        text = text[: call.start] + call.replacement(is_named=is_named) + text[call.start + len(call.source) :]
    tree = ast.parse(before)
    if any(isinstance(node, ast.Assign) and _names_vine(node) for node in tree.body):
        return text
    first = min(call.line for call in wanted)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom) and node.lineno < first]
    heads = imports or (tree.body[:1] if ast.get_docstring(tree) is not None else [])
    after = max((node.end_lineno or 0 for node in heads), default=0)
    lines = lines_of(text)
    end = "\r\n" if "\r\n" in before else "\n"
    new = [f"from vinelm import VineLM{end}", end, f'vine = VineLM("{models_file}"){end}']
    return "".join([*lines[:after], *new, *lines[after:]])


def difference(path: Path, new: str) -> str:
    """Return what an edit changes, as a unified diff."""
    old = text_of(path)
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), path.name, path.name, lineterm="", n=0)
    return "\n".join(lines)


def _names_vine(node: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "vine" for target in node.targets)
