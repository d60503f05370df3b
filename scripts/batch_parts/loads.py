"""Batches for the engine: Helium's workloads over real contexts with its own role prompts, and the blocks of a chat service.

Contexts and questions are those of TAT-QA, prompts and their order in a request follow Helium (arXiv 2603.16104, §7), answers
are simulated: texts of their own, of lengths that are drawn. A token is four characters; no tokenizer is asked.
"""

from __future__ import annotations

import csv
import gzip
import json
import random
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from batch_parts.engine import Prefixes, Prompt, compressed

from vinelm.prompts.shape import BLOCK_TOKENS, Point, Shape, shape_of

KEY = b"of a benchmark"
BLOCK = 32
"""Tokens of a block of the engine."""
MOONCAKE_BLOCK = 512
NAMES = ("debate", "mapreduce", "mapreduce, context first", "reflect", "trading", "mooncake")
DOCUMENTS = 8
"""Contexts of a ticker: they stand for its reports, which are not public."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a request.

    Args:
        depth: Of its stage in the graph, from 0.
        stage: Its name.
        needs: The calls of the same request whose answers its prompt has, by their numbers.
        prompt: As the engine sees it.
        shape: As VineLM sees it.
    """

    depth: int
    stage: str
    needs: tuple[int, ...]
    prompt: Prompt
    shape: Shape


@dataclass(frozen=True)
class Load:
    """A batch.

    Args:
        name: Of :data:`NAMES`.
        block_tokens: Tokens of a block of the engine.
        sizes: Blocks of each edge of their radix tree.
        requests: The calls of each request, in the order of arrival.
        sorted_by: What a user sorts the data set by, of each request.
    """

    name: str
    block_tokens: int
    sizes: Sequence[int]
    requests: Sequence[Sequence[Call]]
    sorted_by: Sequence[Any]


@dataclass
class _Writing:
    """Writes the calls of a request."""

    name: str
    prefixes: Prefixes
    lengths: tuple[int, int]
    calls: list[Call] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)

    def call(self, stage: str, *parts: str, needs: Sequence[int] = (), after: int | None = None) -> int:
        """Add a call and return its number; with ``after`` its parts go on behind the prompt and the answer of that call."""
        number, needs = len(self.calls), tuple(needs) if after is None else (after, *needs)
        text = "\n\n".join(parts) + "\n\n"
        if after is not None:
            text = self.texts[after] + self.answers[after] + "\n\n" + text
        rng = random.Random(f"{self.name}:{number}")
        length = rng.randint(*self.lengths)
        answer = (f"{self.name}.{number} {rng.getrandbits(64):x} " * length)[: 4 * length]
        depth = 1 + max((self.calls[one].depth for one in needs), default=-1)
        self.texts.append(text)
        self.answers.append(answer)
        self.calls.append(Call(depth, stage, needs, self.prefixes.prompt(text, answer), shape_of((text,), KEY)))
        return number


def load(name: str, data: Path, contexts: int | None = None) -> Load:
    """Return a batch over so many contexts, eight times as many of Trading; None: all."""
    if name == "mooncake":
        return _mooncake(data, 2000 if contexts is None else 5 * contexts)
    of_request = DOCUMENTS if name == "trading" else 1
    found_contexts, prompts = _read(data, None if contexts is None else contexts * of_request)
    prefixes = Prefixes(BLOCK)
    if name == "trading":
        found = _trading(found_contexts, prompts, prefixes)
    else:
        rows = [(_context(one), question["question"]) for one in found_contexts for question in one["questions"]]
        random.Random(0).shuffle(rows)
        roles, write = prompts["parallel/prompts/amazon.yaml"], _WRITES.get(name, _mapreduce)
        found = []
        for number, (context, question) in enumerate(rows):
            writing = _Writing(f"{name} {number}", prefixes, (40, 160))
            write(writing, context, question, roles, name.endswith("context first"))
            found.append(((context, question), writing.calls))
    found = list(found)
    return _load(name, BLOCK, [calls for _, calls in found], [by for by, _ in found])


def _load(name: str, block_tokens: int, requests: Sequence[Sequence[Call]], sorted_by: Sequence[Any]) -> Load:
    prompts, sizes = compressed([call.prompt for calls in requests for call in calls])
    made = iter(prompts)
    return Load(
        name, block_tokens, sizes, [[replace(call, prompt=next(made)) for call in calls] for calls in requests], sorted_by
    )


def _read(data: Path, contexts: int | None) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    texts = [(data / "helium_prompts.json").read_text()]
    with gzip.open(data / "tatqa.jsonl.gz", "rt") as lines:
        texts += islice(lines, contexts)
    prompts, *found = (json.loads(text) for text in texts)
    return found, prompts


def _context(row: Mapping[str, Any]) -> str:
    table = "\n".join(" | ".join(cells) for cells in row["table"])
    return "\n\n".join((table, *row["paragraphs"]))


def _roles(roles: Mapping[str, Any], most: int) -> list[tuple[str, str]]:
    return [
        (name, roles["expert_system_prompt"].format(role=name, instructions=text))
        for name, text in islice(roles["role_instructions"].items(), most)
    ]


def _debate(writing: _Writing, context: str, question: str, roles: Mapping[str, Any], _: bool) -> None:
    """Three experts answer, and answer again when they have seen the others; a writer concludes."""
    experts = _roles(roles, 3)
    first = [writing.call(name, role, context, question) for name, role in experts]
    second = []
    for at, (name, _role) in enumerate(experts):
        others = [one for one in first if one != first[at]]
        second.append(writing.call(f"{name}, again", *(writing.answers[one] for one in others), needs=others, after=first[at]))
    answers = [writing.answers[one] for one in second]
    writing.call("writer", roles["writer_system_prompt"], context, question, *answers, needs=second)


def _mapreduce(writing: _Writing, context: str, question: str, roles: Mapping[str, Any], context_first: bool) -> None:
    """Four experts answer, a writer concludes."""
    first = []
    for name, role in _roles(roles, 4):
        parts = (context, role) if context_first else (role, context)
        first.append(writing.call(name, *parts, question))
    writing.call("writer", roles["writer_system_prompt"], question, *(writing.answers[one] for one in first), needs=first)


def _reflect(writing: _Writing, context: str, question: str, roles: Mapping[str, Any], _: bool) -> None:
    """An expert answers, two critics judge in turn, and each time the expert answers again."""
    (name, role), *critics = _roles(roles, 3)
    answer = writing.call(name, role, context, question)
    for at, (critic, its) in enumerate(critics):
        told = writing.call(critic, its, context, question, writing.answers[answer], needs=[answer])
        answer = writing.call(f"{name}, again {at}", writing.answers[told], needs=[told], after=answer)


_WRITES = {"debate": _debate, "mapreduce": _mapreduce, "reflect": _reflect}


def _trading(
    contexts: Sequence[Mapping[str, Any]], prompts: Mapping[str, Any], prefixes: Prefixes
) -> Iterator[tuple[str, list[Call]]]:
    """Helium's Trading: analysts extract and sum up, two researchers debate, a manager, 16 traders, risk analysts, the end."""
    of = {name.split("/")[-1].removesuffix(".yaml"): one for name, one in prompts.items() if name.startswith("trading/")}
    tickers = [[_context(one) for one in islice(contexts, at, at + DOCUMENTS)] for at in range(0, len(contexts), DOCUMENTS)]
    for number, documents in enumerate(tickers):
        if len(documents) == DOCUMENTS:
            writing = _Writing(f"trading {number}", prefixes, (100, 300))
            _trade(writing, f"T{number:03d}", documents, of)
            yield f"T{number:03d}", writing.calls


def _trade(writing: _Writing, stock: str, documents: Sequence[str], of: Mapping[str, Any]) -> None:
    said, named = writing.answers, of["doc_descriptions"]["doc_descriptions"]
    reports, at = {}, 0
    for analyst, takes in (("fundamentals", 4), ("market", 2), ("news", 1), ("social", 1)):
        system = next(text for name, text in of[analyst].items() if name.endswith("system_prompt"))
        asks = next(text for name, text in of[analyst].items() if name.endswith("extraction_fmt"))
        read = []
        for document, (name, about) in zip(documents[at : at + takes], list(named.items())[at : at + takes], strict=True):
            task = asks.split("\n")[0].format(doc_name=name, doc_desc=about)
            read.append(writing.call(f"{analyst}: {name}", system, task, f"You are analyzing the {stock} stock.", document))
        at += takes
        found = [said[one] for one in read]
        reports[analyst] = writing.call(
            f"{analyst}: report", system, f"You are analyzing the {stock} stock.", *found, needs=read
        )
    told = [said[one] for one in reports.values()]
    team, about = of["researchers"], f"You are to analyze the {stock} stock."
    sides = [
        writing.call(side, team[f"{side}_system_prompt"], about, *told, needs=[*reports.values()]) for side in ("bull", "bear")
    ]
    again = [
        writing.call(f"{side}, again", said[sides[1 - at]], needs=[sides[1 - at]], after=sides[at])
        for at, side in enumerate(("bull", "bear"))
    ]
    plan = writing.call("manager", team["research_manager_system_prompt"], about, *(said[one] for one in again), needs=again)
    traders = {
        name: writing.call(name, text, about, said[plan], needs=[plan])
        for name, text in of["traders"]["trader_system_prompts"].items()
    }
    risk, judged = of["risk_analysts"], []
    for kind in [name for name in traders if name.endswith("_1")]:
        argued = [
            writing.call(who, risk[f"{who}_system_prompt"], about, *told, said[traders[kind]], needs=[traders[kind]])
            for who in ("risky_analyst", "safe_analyst", "neutral_analyst")
        ]
        judged.append(writing.call("judge", risk["judge_system_prompt"], about, *(said[one] for one in argued), needs=argued))
    end = [*judged, *(number for name, number in traders.items() if not name.endswith("_1"))]
    system = of["fund_manager"]["fund_manager_system_prompt"]
    writing.call("fund manager", system, about, *(said[one] for one in end), needs=end)


def _mooncake(data: Path, requests: int) -> Load:
    """The first requests of the trace, one call each."""
    found, by = [], []
    with gzip.open(data / "mooncake_blocks.csv.gz", "rt") as lines:
        for row in islice(csv.DictReader(line for line in lines if line.strip()), requests):
            spans = [tuple(map(int, word.split("-"))) for word in row["blocks"].split()]
            blocks = [number for span in spans for number in range(span[0], span[-1] + 1)]
            tokens, tokens_out = int(row["tokens_in"]), max(int(row["tokens_out"]), 1)
            path = tuple(blocks[: tokens // MOONCAKE_BLOCK])
            each = MOONCAKE_BLOCK // BLOCK_TOKENS
            digests = array("Q", [(block << 8) + part for block in path for part in range(each)])
            own = len(path) * MOONCAKE_BLOCK + tokens % BLOCK_TOKENS  # what is beyond the shared blocks tells nothing
            shape = Shape(digests, (Point((1 << 62) + len(found), own),))
            found.append([Call(0, "chat", (), Prompt(path, len(path), tokens, (), tokens_out), shape)])
            by.append(path)
    return _load("mooncake", MOONCAKE_BLOCK, found, by)
