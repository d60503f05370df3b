"""Output of the commands: tables and JSON on stdout, progress bars on stderr."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from contextvars import ContextVar
from typing import IO, TYPE_CHECKING, Any

import click

from vinelm.cli.waiting import held, make_way
from vinelm.io import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_LINE, _WORD = re.compile(r".+"), re.compile(r"\s*\S+\s*")
"""Parts of a table that are never broken: a line of a figure, a word of a text (with its spaces, as rich splits)."""
_COLLECTED: ContextVar[dict[str, Any] | None] = ContextVar("collected", default=None)


_OUTPUT: list[IO[str]] = []
"""The stream for data while the process's own stdout belongs to the application; empty before that."""


def output() -> IO[str]:
    """Return the stream for the command's data. While a command runs, the stream is not ``sys.stdout``; see
    :func:`stdout_apart`.
    """
    return _OUTPUT[-1] if _OUTPUT else sys.stdout


@contextmanager
def stdout_apart(*, for_good: bool = False) -> Iterator[None]:
    """Separate the command's data from what the application prints. Inside the block, ``sys.stdout`` goes to stderr, and data
    goes to :func:`output`.

    An application that is imported, built or run may print, and so may its threads, its child processes, and C libraries that
    write to descriptor 1. A single such line before a JSON object would make the output invalid.

    Args:
        for_good: Keep the two separate after the block, since exit handlers and threads may still print until the process ends.
    """
    before, descriptor = sys.stdout, _descriptor(sys.stdout)
    if descriptor != 1:  # a test or surrounding program has replaced the stream, so the descriptor is not ours to move
        _OUTPUT.append(before)
        elsewhere = redirect_stdout(sys.stderr)
        elsewhere.__enter__()
        try:
            yield
        finally:
            if not for_good:
                elsewhere.__exit__(None, None, None)
                _OUTPUT.pop()
        return
    before.flush()
    ours = os.dup(1)
    _OUTPUT.append(open(ours, "w", encoding=before.encoding, errors=before.errors))  # noqa: SIM115 # it outlives the block
    _point_stdout_at(2)
    if isinstance(before, io.TextIOWrapper):
        before.reconfigure(line_buffering=True)  # keeps the order relative to stderr, also if the process is killed
    try:
        yield
    finally:
        with suppress(OSError, ValueError):
            before.flush()
        if not for_good:
            mine = _OUTPUT.pop()
            os.dup2(ours, 1)
            mine.close()


def _descriptor(stream: IO[str]) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):
        return None


def _point_stdout_at(descriptor: int) -> None:
    try:
        os.dup2(descriptor, 1)
    except OSError:  # stdout is closed, as some services start their processes
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.close(nothing)


def stdout(*, err: bool = False) -> Console:
    """Return a rich console that prints the command's data, or that prints on stderr if ``err`` is true.

    It has no markup, and is 80 columns wide if it is not a terminal.
    """
    from rich.console import Console

    return Console(file=sys.stderr if err else output(), highlight=False, soft_wrap=False, markup=False, emoji=False)


def show_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str | None = None, err: bool = False
) -> None:
    """Print a table on stdout, or on stderr.

    If the table is too wide, headings and texts wrap at spaces. Words and numbers are never broken, so a table may still be
    wider than the terminal.

    Args:
        title: Line above the table.
        columns: Headings. The first column, and columns whose heading starts with ``<``, are text; other columns are numbers.
        rows: The formatted cells of each row.
        caption: Line below the table.
        err: Whether to print on stderr.
    """
    make_way()
    console = stdout(err=err)
    console.print(_table(console, title, columns, rows, caption))


def watch_table(make: Callable[[], tuple[str, Sequence[str], Sequence[Sequence[str]]]], every_s: float) -> None:
    """Show a table on the terminal, and replace it by a new one every ``every_s`` seconds until Ctrl-C.

    Args:
        make: returns the arguments ``title``, ``columns`` and ``rows`` of :func:`show_table`.
        every_s: seconds between two updates, > 0.
    """
    import time

    from rich.live import Live

    with held(), suppress(KeyboardInterrupt), Live(console=stdout(), auto_refresh=False) as live:
        while True:
            live.update(_table(stdout(), *make(), None), refresh=True)  # measured again: the terminal may have changed
            time.sleep(every_s)


def _table(console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], caption: str | None) -> Table:
    """Return a table that is formatted as :func:`show_table` prints it. If it does not fit, widen the console."""
    from rich import box
    from rich.table import Table

    title, caption = visible(title), None if caption is None else visible(caption)
    columns, rows = [visible(name) for name in columns], [[visible(cell) for cell in row] for row in rows]
    heads = [name.removeprefix("<") for name in columns]
    is_text = [index == 0 or name.startswith("<") for index, name in enumerate(columns)]
    cells = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    if _total(_widest(heads, cells, _LINE)) > console.width:
        heads = [head if text else _wrapped(head, column) for head, column, text in zip(heads, cells, is_text, strict=True)]
    widths, words = _widest(heads, cells, _LINE), _widest(heads, cells, _WORD)
    while _total(widths) > console.width:
        able = [index for index, width in enumerate(widths) if is_text[index] and width > words[index]]
        if not able:
            break
        widths[max(able, key=widths.__getitem__)] -= 1
    console.width = max(console.width, _total(widths)) + 2  # rich counts an edge that it does not draw
    table: Table = Table(
        title=title, caption=caption, box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left", pad_edge=False
    )
    table.title_style, table.caption_style = "bold", "dim"
    for head, justify, width in zip(heads, is_text, widths, strict=True):
        table.add_column(head, justify="left" if justify else "right", overflow="fold", width=width)
    for row in rows:
        table.add_row(*row)
    return table


def _wrapped(head: str, cells: Sequence[str]) -> str:
    """Return the heading of a column of numbers, wrapped to the width of the column's longest word or number."""
    import textwrap

    width = max(len(piece) for piece in (*head.split(), *cells))
    return "\n".join(textwrap.wrap(head, width, break_on_hyphens=False))


def _widest(heads: Sequence[str], cells: Sequence[Sequence[str]], piece: re.Pattern[str]) -> list[int]:
    """Return, for each column, the width of its longest unbreakable text (a word or number), in terminal characters.

    Args:
        heads: The heading of each column.
        cells: The cells of each column.
        piece: Matches a text that is never broken, such as a word or a number.
    """
    from rich.cells import cell_len

    columns = ((head, *column) for head, column in zip(heads, cells, strict=True))
    return [max((cell_len(p.rstrip()) for text in texts for p in piece.findall(text)), default=1) for texts in columns]


def _total(widths: Sequence[int]) -> int:
    """Return the total width of a table with columns of these widths."""
    return sum(widths) + 3 * len(widths) - 1


def echo(text: str = "", *, err: bool = False) -> None:
    """Print ``text`` unchanged on stdout or stderr; control and invisible characters are escaped.

    Commands print only through this module (a test checks it), because paths, names and errors are untrusted text.
    """
    make_way()
    click.echo(visible(text), None if err else output(), err=err)


def say(text: str, *, indent: str = "", hanging: int = 0, bold: bool = False) -> None:
    """Print a paragraph on stdout, wrapped to the terminal's width or 100 columns. ``hanging`` indents all lines except the
    first.
    """
    import textwrap

    make_way()
    width = min(stdout().width, 100)
    further = indent + " " * hanging
    wrapped = textwrap.fill(visible(text), width, initial_indent=indent, subsequent_indent=further, break_on_hyphens=False)
    click.secho(wrapped, output(), bold=bold)


def show_screen(lines: Sequence[Sequence[tuple[str, Mapping[str, bool]]]]) -> None:
    """Clear the terminal and print lines. Each line consists of texts with styles, which are arguments of
    :func:`click.style`.
    """
    make_way()
    click.clear()
    click.echo("\n".join("".join(click.style(visible(text), **style) for text, style in line) for line in lines), output())


@contextmanager
def progress(*, quiet: bool) -> Iterator[Callable[..., None]]:
    """Show progress bars on stderr, unless ``quiet`` is true or stderr is not a terminal.

    Yields:
        ``advance(done, total, title, detail=None)``: sets the bar with this title to ``done`` of ``total``; a new title adds a
            bar.
        ``detail`` is the short text next to the bar; by default the two numbers.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    is_shown = console.is_terminal and not quiet
    bars = Progress(
        TextColumn("{task.description:<26}"),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[detail]}", style="dim"),
        console=console,
        disable=not is_shown,
        transient=True,
    )

    tasks: dict[str, TaskID] = {}
    drawing = ExitStack()  # entered with the first bar: until then the command's waiting line is shown

    def advance(done: float, total: float, title: str, detail: str | None = None) -> None:
        if not tasks and is_shown:
            drawing.enter_context(held())
            drawing.enter_context(bars)
        if title not in tasks:
            tasks[title] = bars.add_task(title, total=None, detail="")
        said = f"{done} of {total}" if detail is None else detail
        bars.update(tasks[title], completed=min(done, total), total=total, detail=said)

    with drawing:
        yield advance


@contextmanager
def one_json_object() -> Iterator[dict[str, Any]]:
    """Inside the block, make :func:`print_json` add values to one object instead of printing them. The caller can add an error.

    Yields:
        The object, initially empty. The caller prints it.
    """
    found: dict[str, Any] = {}
    before = _COLLECTED.set(found)
    try:
        yield found
    finally:
        _COLLECTED.reset(before)


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on stdout; NaN and infinity become null. Inside :func:`one_json_object` the object is not printed
    but added to the collected object.
    """
    collected = _COLLECTED.get()
    if collected is None:
        make_way()
        print(json_text(value, indent=2), file=output(), flush=True)
    else:
        collected.update(value)


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return ``value`` as JSON of visible ASCII characters; NaN and infinity become null."""
    import json

    return json.dumps(_plain(value), indent=indent, allow_nan=False).replace("\x7f", "\\u007f")


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.item() if hasattr(value, "item") else value
