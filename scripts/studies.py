"""The frame of a study: its command line, its processes, what it prints, and its file of results.

A study says what it measures and in which words its figures are read:

    def main() -> int:
        return study(__doc__, {"--runs": (200, "simulated runs")}, measure, lines)

Everything else is here, and the same for all: ``--json`` prints one object, ``--results FILE`` writes it for the pages with
the command, the commit and the day, bad input ends with one line and exit code 2. :func:`each` measures cells in processes, in
order, and takes up an interrupted study where it ended; :func:`table` sets rows under heads.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from result_files import add_results_option, provenance, write_results

from vinelm.errors import InputError

Options = argparse.Namespace


def study(
    about: str | None,
    options: Mapping[str, Sequence[Any]],
    measure: Callable[[Options], Any],
    lines: Callable[[Any], str | Iterable[str] | None] | None = None,
    *,
    page: Callable[[Any], Mapping[str, Any]] | None = None,
    data: str | None = None,
    needs_data: bool = True,
    fails: Callable[[Any], object] | None = None,
    words: Sequence[str] | None = None,
) -> int:
    """Parse the command line, measure, print and write; return the exit code.

    Args:
        about: Docstring of the study.
        options: By flag: (default, help), and what else argparse is to know. The type is that of the default. False makes it a
            switch, a list or a tuple takes several values, and a type in place of the default has None as its default.
        measure: Returns the figures. ``options.say`` prints a line as soon as it is known, unless JSON is wanted;
            ``options.keep`` writes the figures so far, so that a study that is ended early leaves something.
        lines: What is printed of the figures, unless it prints by itself; None if ``measure`` has said it all.
        page: What the pages quote of the figures [default: all of them].
        data: What the folder of recorded data has, for studies that read it: they have the option ``--data``.
        needs_data: Whether they can do nothing without.
        fails: Whether these figures end the process with exit code 1.
        words: In place of the process's arguments.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    if data is not None:
        parser.add_argument("--data", type=Path, default=os.environ.get("VINELM_DATA"), metavar="DIR", help=data)
    for flag, (default, text, *more) in options.items():
        parser.add_argument(flag, help=text, **(_kind(default) | dict(*more)))
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_results_option(parser)
    given = parser.parse_args(words)
    if data is not None and given.data is None and needs_data:
        return _refused("say where the recorded data is: --data DIR or VINELM_DATA=DIR")
    made = provenance(given)
    given.say = _silent if given.json else _said

    given.keep = partial(_keep, given.results, made, page)
    try:
        found = measure(given)
    except InputError as error:
        return _refused(error)
    given.keep(found)
    if given.json:
        print(json.dumps(found, indent=1))
    elif lines is not None and (told := lines(found)) is not None:
        print(told if isinstance(told, str) else "\n".join(told))
    return int(bool(fails and fails(found)))


def each(
    measure: Callable[[Any], Any],
    cells: Iterable[Any],
    *,
    jobs: int = 1,
    told: str = "",
    kept: Path | None = None,
    start: str | None = None,
    chunk: int = 1,
) -> Iterator[Any]:
    """Measure every cell, in as many processes, and yield what is found in the order of the cells.

    Args:
        measure: A function that other processes can import; :func:`functools.partial` gives it what all cells share.
        cells: What is measured.
        jobs: Processes; one: this process.
        told: What the cells are, for a line on stderr after every twentieth.
        kept: A file with a JSON line for each cell, so that a study that ended early measures only the rest when it is run
            again; lines of other cells, and of other figures that all cells share, are passed over. What is measured must be
            plain JSON then.
        start: How processes are started, "spawn" where threads forbid forks.
        chunk: Cells that one process gets at a time; those that share what it loads.
    """
    cells = list(cells)
    lines = kept.read_text(encoding="utf-8").splitlines() if kept and kept.exists() else []
    done = {line["cell"]: line["found"] for line in map(json.loads, lines)}
    shared = {name: one for name, one in getattr(measure, "keywords", {}).items() if isinstance(one, int | float | str)}
    places = [f"{cell!r} {shared}" if shared else repr(cell) for cell in cells]
    rest = [cell for cell, place in zip(cells, places, strict=True) if place not in done]
    pool = ProcessPoolExecutor(jobs, mp_context=get_context(start)) if jobs > 1 and rest else None
    try:
        results = map(measure, rest) if pool is None else pool.map(measure, rest, chunksize=chunk)
        for number, place in enumerate(places, 1):
            if place in done:
                yield done[place]
                continue
            found = next(results)
            if kept:
                with kept.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"cell": place, "found": found}) + "\n")
            if told and number % 20 == 0:
                print(f"{told}: {number} of {len(cells)}", file=sys.stderr, flush=True)
            yield found
    finally:
        if pool is not None:
            pool.shutdown(cancel_futures=True)


def table(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str]) -> Iterator[str]:
    """Heads, then a line for each row. A column is named by its head: ``"{accuracy:8.1%}"``; its width is that of the head
    or of the format, whichever is more.
    """
    lines = [[*columns], *([form.format(**row) for form in columns.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for first, *others in lines:
        yield "  ".join([first.ljust(widths[0]), *map(str.rjust, others, widths[1:])])


def named(found: Mapping[str, Any]) -> Iterator[str]:
    """A line for each figure, for studies whose figures stand for themselves."""
    return (f"{name:24} {value:g}" if isinstance(value, float) else f"{name:24} {value}" for name, value in found.items())


def _kind(default: Any) -> dict[str, Any]:
    """How argparse reads a value like the default."""
    if isinstance(default, type):
        return {"type": default}
    if default is False:
        return {"action": "store_true"}
    if isinstance(default, list | tuple):
        return {"nargs": "+", "type": type(default[0]), "default": default}
    return {"default": default} if default is None else {"type": type(default), "default": default}


def _refused(why: object) -> int:
    print(f"error: {why}", file=sys.stderr)
    return 2


def _keep(file: Path | None, made: dict[str, str], page: Callable[[Any], Mapping[str, Any]] | None, found: Any) -> None:
    if file is not None:
        write_results(file, made, dict(page(found) if page else found))


def _said(line: object = "") -> None:
    print(line, flush=True)


def _silent(line: object = "") -> None:
    """JSON is wanted: nothing else on stdout."""
