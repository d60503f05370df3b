"""Other ways to guess the next read, for `bench_speculation.py`: each says after every event which calls may come."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vinelm.tools.call import History, ToolEvent, canonical_key
from vinelm.tools.speculation import ToolCandidate

LEAST_TIMES = 2


def signature(event: str | ToolEvent) -> str:
    return "user" if isinstance(event, str) else event.tool + ("" if event.is_ok else "!")


def leaves(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every value with its path: keys, and the numbers of items."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from leaves(value, (*path, key))
    elif isinstance(node, list):
        for at, value in enumerate(node):
            yield from leaves(value, (*path, at))
    else:
        yield path, node


def once(found: Sequence[ToolCandidate]) -> list[ToolCandidate]:
    best: dict[str, ToolCandidate] = {}
    for one in sorted(found, key=lambda one: -one.probability):
        best.setdefault(canonical_key(one.tool, one.arguments), one)
    return list(best.values())


class Markov:
    """The next tool from the last ``order`` events; each argument is the last value of its name, however deep."""

    def __init__(self, sessions: Sequence[History], reads: frozenset[str], order: int) -> None:
        self.order, self.reads = order, reads
        self.next: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
        self.names: dict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
        for session in sessions:
            signatures = [signature(event) for event in session]
            for at, event in enumerate(session):
                if isinstance(event, ToolEvent):
                    self.names[event.tool][tuple(sorted(event.arguments or {}))] += 1
                for length in range(min(order, at) + 1):
                    self.next[tuple(signatures[at - length : at])][signatures[at]] += 1

    def predictions(self, session: History) -> list[list[ToolCandidate]]:
        """What may come after each event."""
        last: dict[str, Any] = {}
        signatures: list[str] = []
        found = []
        for event in session:
            signatures.append(signature(event))
            if isinstance(event, ToolEvent):
                for root in (event.arguments, event.result):
                    last.update({str(path[-1]): value for path, value in leaves(root) if path and isinstance(path[-1], str)})
            found.append(self._after(signatures, last))
        return found

    def _after(self, signatures: list[str], last: Mapping[str, Any]) -> list[ToolCandidate]:
        for length in range(min(self.order, len(signatures)), -1, -1):
            came = self.next.get(tuple(signatures[len(signatures) - length :]), Counter())
            if came.total() >= LEAST_TIMES:
                break
        found = []
        for tool, times in came.items():
            if tool in self.reads:
                names = self.names[tool].most_common(1)[0][0]
                if all(name in last for name in names):
                    found.append(ToolCandidate(tool, {name: last[name] for name in names}, times / came.total()))
        return found


class PaperMiner:
    """PASTE as published: contexts of one or two events, values at fixed paths of the last results, the next call."""

    def __init__(self, sessions: Sequence[History], reads: frozenset[str]) -> None:
        self.reads = reads
        self.trials: Counter[tuple[str, ...]] = Counter()
        self.hits: dict[tuple[str, ...], Counter[tuple[str, tuple[Any, ...]]]] = defaultdict(Counter)
        for session in sessions:
            for at in range(len(session)):
                for context in self._contexts(session[: at + 1]):
                    self.trials[context] += 1
                coming = session[at + 1] if at + 1 < len(session) else None
                if isinstance(coming, ToolEvent) and coming.tool in reads:
                    mapping = self._mapping(session[: at + 1], coming)
                    if mapping is not None:
                        for context in self._contexts(session[: at + 1]):
                            self.hits[context][coming.tool, mapping] += 1

    @staticmethod
    def _contexts(history: History) -> list[tuple[str, ...]]:
        signatures = [signature(event) for event in history[-2:]]
        return [tuple(signatures[-length:]) for length in (2, 1) if len(signatures) >= length]

    @staticmethod
    def _at_hand(history: History) -> dict[tuple[str, str, tuple[Any, ...]], Any]:
        """The values of the last call of each tool, by (tool, part, path)."""
        found: dict[tuple[str, str, tuple[Any, ...]], Any] = {}
        done = set()
        for event in reversed(history):
            if isinstance(event, ToolEvent) and event.tool not in done:
                done.add(event.tool)
                found.update({(event.tool, "result", path): value for path, value in leaves(event.result)})
                found.update({(event.tool, "arguments", path): value for path, value in leaves(event.arguments)})
        return found

    def _mapping(self, history: History, call: ToolEvent) -> tuple[Any, ...] | None:
        values = self._at_hand(history)
        mapping = []
        for name, value in sorted((call.arguments or {}).items()):
            if isinstance(value, (dict, list)):
                return None
            source = next((at for at, known in values.items() if type(known) is type(value) and known == value), None)
            if source is None:
                return None
            mapping.append((name, source))
        return tuple(mapping)

    def predictions(self, session: History) -> list[list[ToolCandidate]]:
        """What may come after each event."""
        found = []
        for at in range(len(session)):
            values = self._at_hand(session[: at + 1])
            here = []
            for context in self._contexts(session[: at + 1]):
                for (tool, mapping), hits in self.hits.get(context, Counter()).items():
                    if hits >= LEAST_TIMES and all(source in values for _, source in mapping):
                        arguments = {name: values[source] for name, source in mapping}
                        here.append(ToolCandidate(tool, arguments, hits / self.trials[context]))
            found.append(once(here))
        return found


class FrequentNgram:
    """The call that most often followed the last one to three calls, arguments and all."""

    def __init__(self, sessions: Sequence[History], reads: frozenset[str]) -> None:
        self.reads = reads
        self.next: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
        self.calls: dict[str, ToolEvent] = {}
        for session in sessions:
            keys = [self._key(event) for event in session]
            for at, event in enumerate(session):
                for length in range(1, min(3, at) + 1):
                    self.next[tuple(keys[at - length : at])][keys[at]] += 1
                if isinstance(event, ToolEvent):
                    self.calls[event.key] = event

    @staticmethod
    def _key(event: str | ToolEvent) -> str:
        return "user" if isinstance(event, str) else event.key

    def predictions(self, session: History) -> list[list[ToolCandidate]]:
        """What may come after each event."""
        keys = [self._key(event) for event in session]
        found = []
        for at in range(len(session)):
            here: list[ToolCandidate] = []
            for length in range(min(3, at + 1), 0, -1):
                came = self.next.get(tuple(keys[at + 1 - length : at + 1]))
                if came:
                    key, times = came.most_common(1)[0]
                    call = self.calls.get(key)
                    if call is not None and call.tool in self.reads:
                        here = [ToolCandidate(call.tool, call.arguments or {}, times / came.total())]
                    break
            found.append(here)
        return found


class Nothing:
    """No guesses: what is left is a cache of results."""

    def predictions(self, session: History) -> list[list[ToolCandidate]]:
        """What may come after each event."""
        return [[] for _ in session]


class Perfect:
    """Knows every read that comes before the next write; with ``is_bound``, only if its arguments have been seen before."""

    def __init__(self, reads: frozenset[str], *, is_bound: bool) -> None:
        self.reads, self.is_bound = reads, is_bound

    def predictions(self, session: History) -> list[list[ToolCandidate]]:
        """What may come after each event."""
        text, found = "", []
        for at, event in enumerate(session):
            text += "\n" + (event if isinstance(event, str) else repr((event.arguments, event.result)))
            here = []
            for coming in session[at + 1 :]:
                if isinstance(coming, ToolEvent):
                    if coming.tool not in self.reads:
                        break
                    values = [str(value) for _, value in leaves(coming.arguments or {})]
                    if not self.is_bound or all(value in text for value in values):
                        here.append(ToolCandidate(coming.tool, coming.arguments or {}, 1.0))
            found.append(here)
        return found
