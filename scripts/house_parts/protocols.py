"""Protocols and their implementations, found by the names of their members."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Class:
    """A class: where it is, what it inherits from, and its own members."""

    module: str
    name: str
    bases: tuple[str, ...]
    members: frozenset[str]

    @property
    def is_protocol(self) -> bool:
        """Whether it declares a protocol."""
        return "Protocol" in self.bases


def classes(nodes: Mapping[str, Iterable[ast.AST]]) -> list[Class]:
    """All classes among the nodes of these modules, inner ones too."""
    return [
        Class(module, node.name, tuple(filter(None, map(_name, node.bases))), frozenset(_members(node)))
        for module, found in nodes.items()
        for node in found
        if isinstance(node, ast.ClassDef)
    ]


def implementations(found: Iterable[Class]) -> dict[Class, list[Class]]:
    """By protocol: the classes that have all its members, their own or inherited. Protocols of plain functions are left out."""
    everything = list(found)
    by_name: dict[str, list[Class]] = defaultdict(list)
    for one in everything:
        by_name[one.name].append(one)
    whole = {one: _whole(one, by_name, set()) for one in everything}
    concrete = [one for one in everything if not one.is_protocol]
    return {
        protocol: [one for one in concrete if _public(whole[protocol]) <= whole[one]]
        for protocol in everything
        if protocol.is_protocol and "__call__" not in whole[protocol] and _public(whole[protocol])
    }


def lonely(found: Mapping[Class, Collection[Class]], public: Collection[str]) -> list[str]:
    """The protocols with at most one implementation that are not public."""
    return sorted(f"{p.module}.{p.name} ({len(own)})" for p, own in found.items() if len(own) < 2 and p.name not in public)


def _public(members: Collection[str]) -> set[str]:
    return {name for name in members if not name.startswith("__")}


def _whole(one: Class, by_name: Mapping[str, list[Class]], seen: set[str]) -> frozenset[str]:
    members = set(one.members)
    for base in one.bases:
        if base not in seen:
            seen.add(base)
            for other in by_name.get(base, ()):
                members |= _whole(other, by_name, seen)
    return frozenset(members)


def _members(node: ast.ClassDef) -> Iterator[str]:
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            yield item.name
            yield from _set_on_self(item)
        elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            yield item.target.id
        elif isinstance(item, ast.Assign):
            yield from (target.id for target in item.targets if isinstance(target, ast.Name))


def _set_on_self(function: ast.AST) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _name(node.value) == "self":
            yield node.attr


def _name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Subscript):
        return _name(node.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None
