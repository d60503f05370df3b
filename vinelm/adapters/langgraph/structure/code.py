"""Writes a template as the Python code that creates it."""

from __future__ import annotations

from vinelm.template import END, Branch, Loop, Parallel, Stage, Template
from vinelm.template.steps import Step, walk

_WIDTH = 64


def template_code(template: Template) -> str:
    """Return formatted Python code that creates a template. The names in it must be imported; see :func:`template_imports`."""
    stop = [] if template.stop == "workflow" else [f"stop={_text(template.stop)}"]
    return "\n".join(_call("Template", [_sequence([_step(step) for step in template.steps]), *map(_line, stop)]))


def template_imports(template: Template) -> str:
    """Return the import statements that :func:`template_code` needs."""
    used = {type(step).__name__ for step in walk(template.steps) if not isinstance(step, str)} | {"Template"}
    ends = ["from langgraph.graph import END"] if END in walk(template.steps) else []
    return "\n".join([*ends, f"from vinelm import {', '.join(sorted(used))}"])


_Lines = list[str]


def _step(step: Step) -> _Lines:
    if isinstance(step, Stage):
        settings = [
            *([f"models={_names(step.models)}"] if step.models is not None else []),
            *(["answerable=False"] if not step.answerable else []),
            *(["per_node=True"] if step.per_node else []),
            *([f"default={_text(step.default)}"] if step.default is not None else []),
        ]
        return _call("Stage", [_line(_text(step.name)), *map(_line, settings)])
    if isinstance(step, Loop):
        settings = [
            f"times={step.times}",
            *([f"memory={step.memory}"] if step.memory is not None else []),
            *([f"order={_text(step.order)}"] if step.order != "seen" else []),
            *(["early_exit=True"] if step.early_exit else []),
        ]
        return _call("Loop", [_sequence([_step(inner) for inner in step.stages]), *map(_line, settings)])
    if isinstance(step, Parallel):
        return _call("Parallel", [_sequence([_step(stage) for stage in step.stages])])
    if isinstance(step, Branch):
        return _call("Branch", [_arms(step)])
    return ["END"]


def _arms(branch: Branch) -> _Lines:
    arms: list[_Lines] = []
    for label, steps in branch.ways.items():
        first, *rest = ["END"] if steps == (END,) else _sequence([_step(step) for step in steps])
        arms.append([f"{_text(label)}: {first}", *rest])
    return _within("{", arms, "}")


def _sequence(items: list[_Lines]) -> _Lines:
    return _within("(", items, ",)" if len(items) == 1 else ")")


def _call(name: str, arguments: list[_Lines]) -> _Lines:
    return _within(f"{name}(", arguments, ")")


def _within(opening: str, items: list[_Lines], closing: str) -> _Lines:
    """Return ``opening``, the items and ``closing`` as lines of code: a single line if everything fits, otherwise a line for
    each item.
    """
    if all(len(item) == 1 for item in items):
        line = opening + ", ".join(item[0] for item in items) + closing
        if len(line) <= _WIDTH:
            return [line]
    inner = [line for item in items for line in (*item[:-1], f"{item[-1]},")]
    return [opening, *(f"    {line}" for line in inner), closing.lstrip(",")]


def _line(text: str) -> _Lines:
    return [text]


def _names(names: tuple[str, ...]) -> str:
    return f"({', '.join(map(_text, names))}{',' if len(names) == 1 else ''})"


def _text(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
