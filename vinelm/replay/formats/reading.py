"""Reads traces, in files and folders of any known form, into a stream of :class:`~vinelm.replay.formats.call.LoggedCall`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from vinelm.errors import ConfigError
from vinelm.foreign_code import explained
from vinelm.io.file_kinds import unread
from vinelm.replay.formats import langfuse, langsmith, litellm, openai, otel, own
from vinelm.replay.formats.call import LoggedCall
from vinelm.replay.formats.pairs import BatchPairs
from vinelm.replay.formats.records import records

FORMATS: Mapping[str, ModuleType] = MappingProxyType(
    {"vinelm": own, "otel": otel, "langsmith": langsmith, "litellm": litellm, "langfuse": langfuse, "openai": openai}
)
"""Name to reader, in the order in which a record is compared with them. ``otel`` has OpenInference, too."""
_SUFFIXES = (".json", ".jsonl", ".ndjson", ".csv", ".parquet", ".log", ".txt")
MOST_NAMED = 20
"""How many broken lines are named; further ones are only counted."""

Redact = Callable[[LoggedCall], LoggedCall]
EVEN_DAYS = "days"
"""A value of ``weights`` instead of a function: each day counts the same."""


@dataclass
class TraceReading:
    """Counts of what was read so far, and of what could not be read.

    Attributes:
        files: Number of opened files.
        calls: Number of model calls.
        others: Number of records that are not model calls: tools, retrievers, spans around them.
        broken: Number of lines and records that could not be read.
        named: File, line and reason of the first lines and records that could not be read.
        formats: Number of calls in each form.
        bytes_done: Bytes read so far; compressed files count with their size on disk.
        bytes_total: Bytes of all files.
        on_inputs: Called with the name of a request and the application's inputs, if the trace has them; see
            :func:`read_calls`.
    """

    files: int = 0
    calls: int = 0
    others: int = 0
    broken: int = 0
    named: list[str] = field(default_factory=list)
    formats: Counter[str] = field(default_factory=Counter)
    bytes_done: int = 0
    bytes_total: int = 0
    on_inputs: Callable[[str, Any], None] | None = field(default=None, repr=False, compare=False)

    def note(self, where: str, why: str) -> None:
        """Count a line or record that could not be read; ``where`` is file and line, ``why`` the reason."""
        self.broken += 1
        if len(self.named) < MOST_NAMED:
            self.named.append(f"{where}: {why}")


def read_calls(
    paths: Sequence[str | Path] | str | Path,
    *,
    format: str | None = None,
    redact: Redact | None = None,
    reading: TraceReading | None = None,
    on_progress: Callable[[TraceReading], None] = lambda reading: None,
    on_inputs: Callable[[str, Any], None] | None = None,
) -> Iterator[LoggedCall]:
    """Yield the LLM calls of traces, one at a time, in bounded memory.

    Reads traces of Langfuse, LangSmith, OpenTelemetry, OpenInference and LiteLLM, and lines of :class:`~vinelm.VineRecorder`.
    Also reads OpenAI's requests with their responses. Those of a batch are joined by ``custom_id``, whatever the order of the
    files.

    The files are JSON, JSON lines, CSV or Parquet, also packed with gzip. A record that cannot be read is counted and left out.

    Args:
        paths: Files, and folders that are searched for them.
        format: The form (:data:`FORMATS`); None detects it, record by record.
        redact: Is called with each call before anything else, and returns the part of the call that may be used.
        reading: Updated with what was read.
        on_progress: Called every 1,000 records.
        on_inputs: Called with the name of a request and the application's inputs, if the trace has them.

    Raises:
        ConfigError: A path does not exist, nothing in a file can be read, there is no call at all, or ``redact`` fails.
    """
    if format is not None and format not in FORMATS:
        raise ConfigError(f"unknown format {format!r}: it is one of {', '.join(FORMATS)}", code="trace-format")
    known = [(name, FORMATS[name]) for name in ([format] if format else FORMATS)]
    reading = reading if reading is not None else TraceReading()
    reading.on_inputs = on_inputs
    named = [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    files = [(file, path.is_dir()) for path in named for file in _files(path)]
    reading.bytes_total = sum(file.stat().st_size for file, _ in files)
    pairs, joins = BatchPairs(), format in (None, "openai")
    for file, is_found in files:
        begun, calls, others, broken = reading.bytes_done, reading.calls, reading.others + pairs.kept, reading.broken

        def advance(done: int, begun: int = begun) -> None:
            reading.bytes_done = begun + done

        reading.files += 1
        try:
            for number, (where, record) in enumerate(records(file, reading.note, advance), start=1):
                if number % 1000 == 0:
                    on_progress(reading)
                for place, whole in pairs.fed(where, record) if joins else ((where, record),):
                    for call in _calls(whole, place, known, reading):
                        yield call if redact is None else _redacted(redact, call)
        except OSError as error:
            raise ConfigError(f"{file}: cannot read the trace: {unread(file, error)}") from error
        reading.bytes_done = begun + file.stat().st_size
        # A folder may also hold scores, manifests and the like: their records are counted as broken, and named.
        if not is_found and (reading.calls, reading.others + pairs.kept) == (calls, others):
            why = f"{reading.named[-1]}" if reading.broken > broken and reading.named else f"{file}: it holds no record"
            raise ConfigError(f"nothing in it can be read: {why}", code="trace-unread")
    for place, whole in pairs.rest(reading.note):
        for call in _calls(whole, place, known, reading):
            yield call if redact is None else _redacted(redact, call)
    reading.others += pairs.unanswered
    if not reading.calls:
        what = f"{reading.others:,} records, none of them a call of a model" if reading.others else "no file of a known form"
        raise ConfigError(
            f"{', '.join(map(str, named))}: {what}: export generations (LLM runs, spans) with them", code="trace-unread"
        )


def weighted(calls: Iterable[LoggedCall], weight: Callable[[LoggedCall], Any]) -> Iterator[LoggedCall]:
    """Set ``stands_for`` of each call, the number of calls that it represents, to ``weight(call)``, and yield the calls.

    Raises:
        ConfigError: ``weight`` fails, or does not return a number >= 0.
    """

    def failed(error: Exception) -> ConfigError:
        return ConfigError(f"weights fails with {type(error).__name__}: mend the function", code="weights")

    for call in calls:
        with explained(failed, hides=True):
            found = weight(call)
        if isinstance(found, bool) or not isinstance(found, int | float) or not (isfinite(found) and found >= 0.0):
            raise ConfigError(
                f"{call.where}: weights returned {found!r}: return how many calls this one represents, 0 or more",
                code="weights",
            )
        yield replace(call, stands_for=found)


def _files(path: Path) -> list[Path]:
    """Return the file itself, or the files of a folder, ordered by name."""
    if not path.exists():
        raise ConfigError(f"{path}: cannot read the trace: {unread(path, FileNotFoundError())}")
    if not path.is_dir():
        return [path]
    return sorted(
        file
        for file in path.rglob("*")
        if file.name.removesuffix(".gz").endswith(_SUFFIXES)
        and not any(part.startswith(".") for part in file.relative_to(path).parts)
        and file.is_file()
        and file.stat().st_size
    )


def _calls(record: object, where: str, known: list[tuple[str, ModuleType]], reading: TraceReading) -> Iterator[LoggedCall]:
    """Yield the calls of a record, and count them in ``reading``. If the record cannot be read, ``reading`` gets the reason.

    Args:
        record: The record.
        where: The record's file and line.
        known: Pairs (name of a form, module that reads this form); the first module that recognizes the record is used.
        reading: Updated with what was read.
    """
    try:
        if not isinstance(record, dict):
            raise TypeError
        place = next((place for place, (_, reader) in enumerate(known) if reader.is_record(record)), None)
        if place is None:
            forms = f"no record of {known[0][0]}" if len(known) == 1 else "of no known form"
            reading.note(where, forms)
            return
        name, reader = known[place]
        found: Iterable[LoggedCall] = list(reader.calls_of(record, where))
        given = list(reader.inputs_of(record)) if reading.on_inputs is not None and hasattr(reader, "inputs_of") else []
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, RecursionError) as error:
        reading.note(where, f"not a record of a call ({type(error).__name__})")
        return
    if not found:
        reading.others += 1
    for request, inputs in given:
        assert reading.on_inputs is not None
        reading.on_inputs(request, inputs)
    for call in found:
        reading.calls += 1
        reading.formats[name] += 1
        yield call


def _redacted(redact: Redact, call: LoggedCall) -> LoggedCall:
    def failed(error: Exception) -> ConfigError:
        return ConfigError(f"{call.where}: redact fails with {type(error).__name__}: mend the function", code="redact")

    with explained(failed, hides=True):
        found = redact(call)
    if not isinstance(found, LoggedCall):
        raise ConfigError(
            f"{call.where}: redact returned a {type(found).__name__}, not a LoggedCall: return dataclasses.replace(call, ...)",
            code="redact",
        )
    return found
