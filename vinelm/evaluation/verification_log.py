"""The file of a verification: a JSON line per served request and per raised bound on the money spent, durable at once."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from vinelm.errors import ConfigError, FailureKind
from vinelm.io.reading import open_regular

FORMAT = "vinelm-verification"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedRequest:
    """One held-out request that was served.

    Attributes:
        request_id: The request.
        success: Whether the answer is right; False for a failed request.
        cost_usd: Dollars of all its calls.
        latency_s: Seconds from its arrival to its answer.
        prefix: The models that ran, in order.
        failure: Kind of the failure; None if the application returned.
    """

    request_id: str
    success: bool
    cost_usd: float
    latency_s: float
    prefix: tuple[str, ...]
    failure: FailureKind | None = None


class VerificationLog:
    """Appends to the file of one verification, and reads what an interrupted one left. One process at a time.

    Args:
        path: The file; None keeps nothing, and an interrupted verification starts over.
        what: What is verified, as plain JSON. A file of anything else is refused.

    Raises:
        ConfigError: The file is of another verification, or is no such file.
    """

    def __init__(self, path: Path | None, what: Mapping[str, Any]) -> None:
        self.path = path
        self.rows: list[VerifiedRequest] = []
        self.spent_usd = 0.0
        """Dollars spent so far, by interrupted runs too; calls of unknown outcome count at their upper bound."""
        self._bound_usd = 0.0
        header = {"format": FORMAT, "version": VERSION, "what": dict(what)}
        if path is None:
            return
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path}: is not a regular file: name another one for the log")
        if not path.exists() or not path.stat().st_size:
            self._append(header)
        else:
            self._read(path, header)

    def bound(self, at_most_usd: float) -> None:
        """Make durable that up to ``at_most_usd`` dollars may have been spent; called before a call is made."""
        if at_most_usd > self._bound_usd:
            self._append({"at_most_usd": at_most_usd})
            self._bound_usd = at_most_usd

    def settle(self, spent_usd: float) -> None:
        """Make durable what has been spent when no call is under way."""
        self._append({"at_most_usd": spent_usd})
        self.spent_usd = self._bound_usd = spent_usd

    def add(self, row: VerifiedRequest, spent_usd: float) -> None:
        """Make a served request durable, and the dollars spent so far."""
        self._append({"row": asdict(row), "spent_usd": spent_usd})
        self.rows.append(row)
        self.spent_usd = self._bound_usd = spent_usd

    def _append(self, line: Mapping[str, Any]) -> None:
        if self.path is None:
            return
        with self.path.open("ab") as file:
            file.write(json.dumps(line, sort_keys=True).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _read(self, path: Path, header: Mapping[str, Any]) -> None:
        try:
            with open_regular(path) as file:
                data = file.read()
        except OSError as error:
            raise ConfigError(f"{path}: cannot read the log of a verification: {error.strerror}: name another one") from error
        whole = data[: data.rfind(b"\n") + 1]
        try:
            lines = [json.loads(line) for line in whole.splitlines()]
            found = lines[0]
            if found.get("format") != FORMAT:
                raise ValueError("no verification")
        except (ValueError, IndexError, AttributeError) as error:
            raise ConfigError(f"{path}: exists and is not the log of a verification: name another one") from error
        if found != json.loads(json.dumps(header)):
            raise ConfigError(
                f"{path}: is the log of another verification (trie, objective, dataset or models): name another one"
            )
        for line in lines[1:]:
            self._replay(line)
        if len(whole) < len(data):  # the machine died while a line was written: nothing was done on its behalf yet
            with path.open("r+b") as file:
                file.truncate(len(whole))

    def _replay(self, line: Mapping[str, Any]) -> None:
        if "row" in line:
            self.rows.append(_row(line["row"]))
        self.spent_usd = self._bound_usd = float(line["spent_usd"] if "row" in line else line["at_most_usd"])


def _row(plain: Mapping[str, Any]) -> VerifiedRequest:
    names = {field.name for field in fields(VerifiedRequest)}
    known = {name: value for name, value in plain.items() if name in names}
    return VerifiedRequest(**{**known, "prefix": tuple(known["prefix"])})
