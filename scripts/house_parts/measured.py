"""The figures of the house that can be traced to places, each with what makes it up."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from house_parts import folders, protocols, source, switches

if TYPE_CHECKING:
    import ast

    from house import House


@dataclass(frozen=True)
class Figure:
    """A value, and where it comes from: one line for each thing counted, or for each group of them."""

    value: float
    where: list[str] = field(default_factory=list)


def of_source(house: House, tops: tuple[str, ...]) -> dict[str, Figure]:
    """What the source of the product's folders alone tells."""
    paths = source.tracked(house.root, tops)
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    sizes = [(text.count("\n"), path) for path, text in texts.items()]
    said = {path: source.comments(text) for path, text in texts.items() if path.suffix == ".py"}
    skipped = Counter({str(path.relative_to(house.root)): len(source.skips(text)) for path, text in texts.items()})
    return {
        **_folders(house),
        **_switches(house),
        **_surface(house),
        "product_lines": Figure(sum(size for size, _ in sizes), _by_folder(sizes, house.root)),
        "files": Figure(len(house.files), _counted(Counter(map(house.folder, house.files)))),
        "comments_per_100_lines": Figure(round(100 * sum(map(len, said.values())) / sum(house.code_lines.values()), 2)),
        "format_skips": Figure(skipped.total(), _counted(skipped)),
    }


def _folders(house: House) -> dict[str, Figure]:
    folder_of = {name: house.folder(name) for name in house.files}
    found = folders.groups(folders.folder_arrows(house.arrows, folder_of))
    lines = [", ".join(group) for group in found]
    return {
        "circles_between_folders": Figure(len(found), lines),
        "folders_in_circles": Figure(sum(map(len, found)), lines),
    }


def _switches(house: House) -> dict[str, Figure]:
    def places(find: Callable[[list[ast.AST]], list[int]]) -> list[tuple[str, int]]:
        return [(name, line) for name, nodes in sorted(house.nodes.items()) for line in find(nodes)]

    asked, absent = places(switches.kind_switches), places(switches.absence_switches)
    elsewhere = [(name, line) for name, line in asked if not switches.is_allowed(name)]
    return {
        "kind_switches": Figure(len(asked), _counted(Counter(house.folder(name) for name, _ in asked))),
        "kind_switches_elsewhere": Figure(len(elsewhere), _lines(elsewhere)),
        "absence_switches": Figure(len(absent), _lines(absent)),
    }


def _surface(house: House) -> dict[str, Figure]:
    public = {package: list(house.public(package)) for package in house.files if house.public(package)}
    named = {name for names in public.values() for name in names}
    classes = protocols.classes(house.nodes)
    everything = [one for one in classes if one.is_protocol]
    lonely = protocols.lonely(protocols.implementations(classes), named)
    by_package = Counter({package: len(names) for package, names in public.items()})
    return {
        "public_names": Figure(by_package.total(), _counted(by_package)),
        "front_door_names": Figure(len(public.get("vinelm", ())), [", ".join(public.get("vinelm", ()))]),
        "protocols": Figure(len(everything), sorted(f"{one.module}.{one.name}" for one in everything)),
        "lonely_protocols": Figure(len(lonely), lonely),
    }


def of_passes(passes: Mapping[str, Mapping[str, list[str]]]) -> dict[str, Figure]:
    """Files and functions of each scenario."""
    rows = ((name, what, row[what]) for name, row in passes.items() for what in ("files", "functions"))
    return {f"{name}_{what}": Figure(len(passed), passed) for name, what, passed in rows}


def of_commands(python: str) -> dict[str, Figure]:
    """The commands and options of the checkout that this interpreter has installed."""
    script = Path(__file__).with_name("commands.py")
    done = subprocess.run([python, str(script)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, list[str]] = json.loads(done.stdout)
    return {
        "commands": Figure(len(found), list(found)),
        "options": Figure(sum(map(len, found.values())), [f"{name}: {' '.join(own)}" for name, own in found.items()]),
    }


def _counted(found: Counter[str]) -> list[str]:
    return [f"{count:5} {name}" for name, count in found.most_common() if count]


def _lines(found: Iterable[tuple[str, int]]) -> list[str]:
    of: dict[str, list[str]] = {}
    for name, line in found:
        of.setdefault(name, []).append(str(line))
    return [f"{name}: {', '.join(lines)}" for name, lines in of.items()]


def _by_folder(sizes: Iterable[tuple[int, Path]], root: Path) -> list[str]:
    found: Counter[str] = Counter()
    for size, path in sizes:
        found["/".join(path.relative_to(root).parts[:-1][:2])] += size
    return _counted(found)
