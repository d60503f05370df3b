"""Where the commands write: tables to stdout, progress to stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Advance = Callable[[int, int], None]
"""What long work calls back: (done, total)."""


def stdout() -> Console:
    """A console for data: no colour guessing inside numbers, 80 columns when the output is not a terminal."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False)


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str | None = None) -> None:
    """Print a table; the first column is text, the others are figures. A column whose name starts with ``<`` is text, too."""
    from rich import box
    from rich.table import Table

    table: Table = Table(
        title=title, caption=caption, box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left", pad_edge=False
    )
    table.title_style, table.caption_style = "bold", "dim"
    for index, name in enumerate(columns):
        is_text = index == 0 or name.startswith("<")
        table.add_column(name.removeprefix("<"), justify="left" if is_text else "right", overflow="fold", no_wrap=not is_text)
    for row in rows:
        table.add_row(*row)
    stdout().print(table)


@contextmanager
def progress(*, quiet: bool) -> Iterator[Callable[[str], Advance]]:
    """Gives ``start(description) -> advance(done, total)``: bars on stderr, nothing when quiet or when stderr is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    bars = Progress(
        TextColumn("{task.description:<34}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=quiet or not console.is_terminal,
        transient=True,
    )

    def start(description: str) -> Advance:
        task = bars.add_task(description, total=None)

        def advance(done: int, total: int) -> None:
            bars.update(task, completed=done, total=total)

        return advance

    with bars:
        yield start


def print_json(value: Any) -> None:
    """One JSON object on stdout; NaN and infinity become null."""
    import json

    print(json.dumps(_plain(value), indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.item() if hasattr(value, "item") else value
