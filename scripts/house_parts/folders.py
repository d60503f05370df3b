"""Circles between folders: groups whose folders import each other, directly or by way of others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping


def folder_arrows(arrows: Mapping[str, Iterable[str]], folder_of: Mapping[str, str]) -> dict[str, set[str]]:
    """The folders that each folder imports from; an import of a package's face is one of its folder."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, targets in arrows.items():
        mine = folder_of[name]
        found[mine] |= {folder_of[target] for target in targets} - {mine}
    return dict(found)


def groups(arrows: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The strongly connected groups of more than one member, the largest first (Tarjan's algorithm, without recursion)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    open_names: set[str] = set()
    found: list[list[str]] = []
    for start in sorted(arrows):
        waiting = [(start, iter(sorted(arrows.get(start, ()))))] if start not in number else []
        while waiting:
            name, targets = waiting[-1]
            if name not in number:
                number[name] = lowest[name] = len(number)
                path.append(name)
                open_names.add(name)
            for target in targets:
                if target not in number:
                    waiting.append((target, iter(sorted(arrows.get(target, ())))))
                    break
                if target in open_names:
                    lowest[name] = min(lowest[name], number[target])
            else:
                waiting.pop()
                if waiting:
                    above = waiting[-1][0]
                    lowest[above] = min(lowest[above], lowest[name])
                if lowest[name] == number[name]:  # the root of a group: all that was visited since belongs to it
                    at = path.index(name)
                    group, path = path[at:], path[:at]
                    open_names.difference_update(group)
                    if len(group) > 1:
                        found.append(sorted(group))
    return sorted(found, key=lambda group: (-len(group), group))
