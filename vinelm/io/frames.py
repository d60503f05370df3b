"""Data frames and HTML tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from vinelm.extras import required_extra

if TYPE_CHECKING:
    import pandas


def data_frame(
    columns: Mapping[str, Any], *, dtypes: Mapping[str, str] | None = None, index: Any = None, index_name: str | None = None
) -> pandas.DataFrame:
    """Return a data frame of these columns, in their order.

    Args:
        columns: The values of each column, by column name.
        dtypes: The pandas dtype by column name, for columns that may have missing values (``"Int64"``, ``"boolean"``).
        index: The row labels; None numbers the rows from 0.
        index_name: The name of the row labels.

    Raises:
        MissingExtra: pandas is not installed.
    """
    with required_extra("pandas", "a data frame"):
        import pandas
    labels = None if index is None else pandas.Index(index, name=index_name)
    frame = pandas.DataFrame(dict(columns), index=labels)
    return frame.astype(dict(dtypes)) if dtypes else frame


def html_table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a small HTML table without script or style; every text is escaped."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(value))}</td>" for value in row) + "</tr>" for row in rows)
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
