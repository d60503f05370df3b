"""Reads records of files of any size, one at a time: JSON lines, JSON arrays and documents, CSV, Parquet; plain or gzip."""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from vinelm.io.arrow_tables import read_parquet
from vinelm.io.reading import MIB, open_regular

LONGEST = 64 * MIB
"""The longest record that is read, in bytes: a longer record cannot be a call."""
_PIECE = 256 * 1024
_ARRAYS = ("data", "runs", "observations", "resourceSpans", "scopeSpans", "spans", "batches")
"""Keys of documents whose arrays hold the records."""
_DECODER = json.JSONDecoder()

Note = Callable[[str, str], None]
"""Called for each unreadable record, with its place and the reason."""


def records(path: Path, note: Note, advance: Callable[[int], None]) -> Iterator[tuple[str, Any]]:
    """Yield (``FILE:LINE``, value) of each record of a file; unreadable records are reported to ``note`` and skipped.

    At most a few hundred kilobytes, or the longest record, are in memory at a time. ``advance`` gets the number of bytes
    read.

    Raises:
        OSError: The file cannot be opened.
        DatasetError: The file is Parquet, and damaged.
        MissingExtra: The file is Parquet, and pyarrow is not installed.
    """
    with _opened(path) as (_, file):
        magic = file.read(4)
    if magic == b"PAR1":
        for number, row in read_parquet(path, called="trace"):
            yield f"{path}, row {number}", row
        return
    with _opened(path) as (_, file):
        head = _read(file, MIB)
    with _opened(path) as (raw, file):
        kind = _kind(head)
        reader = {"lines": _lines, "document": _document, "csv": _csv}[kind]
        place, count = f"{path}:1", 0
        try:
            for place, value in reader(file, path, note):
                yield place, value
                count += 1
                if count % 256 == 0:
                    advance(raw.tell())
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            note(place, f"the rest of the file cannot be unpacked ({error})")


@contextmanager
def _opened(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open a file; yield the raw file and its unpacked content."""
    with open_regular(path) as raw:
        packed: Any = gzip.GzipFile(fileobj=raw) if raw.peek(2)[:2] == b"\x1f\x8b" else raw
        yield raw, packed


def _read(file: IO[bytes], most: int) -> bytes:
    """Return the first ``most`` bytes of a file; fewer if the file ends, or is damaged, before that many."""
    found = b""
    with suppress(EOFError, zlib.error, gzip.BadGzipFile):
        while len(found) < most and (piece := file.read(min(_PIECE, most - len(found)))):
            found += piece
    return found


def _kind(head: bytes) -> str:
    """Return the format of a file, ``lines`` (of JSON), ``document`` (JSON) or ``csv``, guessed from its beginning ``head``."""
    text = head.removeprefix(codecs.BOM_UTF8).lstrip()
    if text[:1] not in (b"{", b"["):
        return "lines" if b"\n{" in text or not text else "csv"
    lines = text.split(b"\n")
    whole = lines if len(head) < MIB else lines[:-1]  # the last line may be cut off
    if text[:1] == b"[":
        return "lines" if len(whole) > 1 and _parsed(whole[0]) is not None and whole[1][:1] in (b"[", b"{") else "document"
    # JSON lines: one of the first lines is complete. A document over several lines: no complete line starts at the margin.
    return "lines" if any(line[:1] == b"{" and _parsed(line) is not None for line in whole[:20]) else "document"


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _unfolded(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield (place, record) for each record in a value: an array of records, an API's page that contains such an array,
    or one record.

    ``place`` is the value's file and line.
    """
    name = next(
        (name for name in ("data", "runs", "observations") if isinstance(value, dict) and isinstance(value.get(name), list)),
        None,
    )
    found = value if isinstance(value, list) else value[name] if name else [value]
    for one in found:
        yield place, one


def _lines(file: IO[bytes], path: Path, note: Note) -> Iterator[tuple[str, Any]]:
    number = 0
    while line := file.readline(LONGEST):
        number += 1
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        place = f"{path}:{number}"
        if len(line) == LONGEST and not line.endswith(b"\n"):
            note(place, f"longer than {LONGEST // MIB} MiB")
            while (line := file.readline(LONGEST)) and not line.endswith(b"\n"):
                pass
            continue
        if not line.strip():
            continue
        try:
            value = json.loads(line.decode("utf-8", "replace").rstrip())
        except ValueError as error:
            note(place, f"not valid JSON: {getattr(error, 'msg', error)} at column {getattr(error, 'colno', 1)}")
        except RecursionError:
            note(place, "nested too deep")
        else:
            yield from _unfolded(place, value)


def _csv(file: IO[bytes], path: Path, note: Note) -> Iterator[tuple[str, Any]]:
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
    lines = (line.decode("utf-8", "replace").removeprefix("\ufeff") for line in iter(partial(file.readline, LONGEST), b""))
    reader = csv.DictReader(lines)
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            note(f"{path}:{reader.line_num}", f"not valid CSV: {error}")
            continue
        if None in row or None in row.values():
            note(f"{path}:{reader.line_num}", f"it does not have the header's {len(reader.fieldnames or ())} fields")
        else:
            yield f"{path}:{reader.line_num}", row


def _document(file: IO[bytes], path: Path, note: Note) -> Iterator[tuple[str, Any]]:
    text = _Moving(file)
    while text.next_mark():
        try:
            for line, value in text.records():
                yield from _unfolded(f"{path}:{line}", value)
        except (ValueError, RecursionError) as error:
            why = getattr(error, "msg", None) or ("nested too deep" if isinstance(error, RecursionError) else str(error))
            note(f"{path}:{text.line}", f"not valid JSON: {why}; the rest of the file was not read")
            return


class _Moving:
    """Decodes the JSON values in a file while reading the file in pieces.

    Everything before the index ``_at`` in the text read so far is decoded.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._decode = file, codecs.getincrementaldecoder("utf-8-sig")("replace").decode
        self._text, self._at, self._is_whole, self.line = "", 0, False, 1

    def _more(self, size: int = _PIECE) -> bool:
        """Read more of the file; return False at its end."""
        if self._is_whole:
            return False
        piece = self._file.read(size)
        self._is_whole = not piece
        self._text, self._at = self._text[self._at :] + self._decode(piece, self._is_whole), 0
        return True

    def _skip(self, end: int) -> None:
        self.line += self._text.count("\n", self._at, end)
        self._at = end

    def next_mark(self) -> str:
        """Return the next non-space character without consuming it; "" at the end of the file."""
        while True:
            end = self._at
            while end < len(self._text) and self._text[end] in " \t\r\n":
                end += 1
            self._skip(end)
            if end < len(self._text):
                return self._text[end]
            if not self._more():
                return ""

    def _take(self, *marks: str) -> str:
        found = self.next_mark()
        if found not in marks or not found:
            raise ValueError(f"expected {' or '.join(marks)}, found {found or 'the end of the file'}")
        self._at += 1
        return found

    def _value(self) -> Any:
        """Return the decoded JSON value at the current position, reading more of the file until the value is complete."""
        self.next_mark()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                is_cut = "Unterminated" in error.msg or error.pos >= len(self._text) - 16
                if (
                    not is_cut
                    or len(self._text) - self._at > LONGEST
                    or not self._more(max(_PIECE, len(self._text) - self._at))
                ):
                    raise
                continue
            if end == len(self._text) and not self._is_whole and self._more():  # a number may continue
                continue
            self._skip(end)
            return value

    def records(self) -> Iterator[tuple[int, Any]]:
        """Yield (line, value) of each record in the JSON value at the current position, descending into arrays of records."""
        line = self.line
        if self.next_mark() == "[":
            yield from self._elements()
            return
        if self.next_mark() != "{":
            yield line, self._value()
            return
        self._at += 1
        found: dict[str, Any] = {}
        is_envelope = False
        if self.next_mark() == "}":
            self._at += 1
            return
        while True:
            key = self._value()
            self._take(":")
            if key in _ARRAYS and self.next_mark() == "[":
                is_envelope = True
                yield from self._elements(goes_down=key in ("resourceSpans", "batches", "scopeSpans"))
            else:
                found[str(key)] = self._value()
            if self._take(",", "}") == "}":
                break
        if not is_envelope:
            yield line, found

    def _elements(self, *, goes_down: bool = False) -> Iterator[tuple[int, Any]]:
        self._take("[")
        if self.next_mark() == "]":
            self._at += 1
            return
        while True:
            line = (self.next_mark(), self.line)[1]
            if goes_down:
                yield from self.records()
            else:
                yield line, self._value()
            if self._take(",", "]") == "]":
                return
