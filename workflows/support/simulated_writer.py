"""Writes the answers of simulated models at each stage of the support desk."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from vinelm.requests.workflow import Request, StageWriter
from vinelm.workflows.nl2sql import SqlWriter
from vinelm.workflows.support.articles import ARTICLES
from vinelm.workflows.support.prompts import REPLIES
from vinelm.workflows.support.tickets import DESKS

NOTHING_TO_LOOK_UP = "SELECT customer_name FROM customer WHERE email = 'unknown'"
"""The statement for a ticket that a wrong router sent to the billing desk: it has nothing to look up there."""


class Router:
    """Writes the router's answers: the name of a desk. Tickets with a misleading opening are harder."""

    kinds: Sequence[str] = ("wrong_desk",)
    ease = 1.6

    def skills(self, request: Request) -> Mapping[str, float]:
        """Return the skills that routing the request demands, each with its difficulty in [0, 1].

        Empty unless the opening of the ticket is misleading.
        """
        return {"filters": 1.0, "nesting": 1.0} if request.data["misleading"] else {}

    def right(self, request: Request, rng: random.Random) -> str:
        """Return a text that names the right desk."""
        return rng.choice(("{}", "{}.", "Desk: {}")).format(request.data["desk"])

    def wrong(self, request: Request, kind: str, rng: random.Random) -> str:
        """Return the name of one of the other two desks, chosen at random; ``kind`` is ignored."""
        return rng.choice([desk for desk in DESKS if desk != request.data["desk"]])


class Lookup:
    """Writes the billing desk's SQL: the labelled query, or this query with one error."""

    ease = 0.7

    def __init__(self, databases: Path) -> None:
        self._writer = SqlWriter(databases)
        self.kinds = self._writer.kinds

    def skills(self, request: Request) -> Mapping[str, float]:
        """Return the difficulty of the labelled query by skill, each in [0, 1]; empty for tickets without a query."""
        return self._writer.skills(request) if "gold_sql" in request.data else {}

    def right(self, request: Request, rng: random.Random) -> str:
        """Return the labelled query; if the ticket has no query, a query that finds nothing."""
        return self._writer.right(request, rng) if "gold_sql" in request.data else NOTHING_TO_LOOK_UP

    def wrong(self, request: Request, kind: str, rng: random.Random) -> str:
        """Return the labelled query with an error of the given kind; if the ticket has no query, a query that finds nothing."""
        return self._writer.wrong(request, kind, rng) if "gold_sql" in request.data else NOTHING_TO_LOOK_UP


class Search:
    """Writes search words: those of the labelled article, or of another article about the same device."""

    kinds: Sequence[str] = ("neighbour", "vague")
    ease = 0.8

    def skills(self, request: Request) -> Mapping[str, float]:
        """Return the difficulty of the search by skill.

        It demands only the skill "nesting": 0.5 if the ticket names the device, otherwise 1.
        """
        device = self._words(request)[:1]
        return {"nesting": 0.5 if device and device[0] in str(request.data["ticket"]).lower() else 1.0}

    def right(self, request: Request, rng: random.Random) -> str:
        """Return the keywords of the labelled article in random order."""
        words = list(self._words(request)) or ["shop"]
        rng.shuffle(words)
        return " ".join(words)

    def wrong(self, request: Request, kind: str, rng: random.Random) -> str:
        """Return words that find another article, or no article.

        For the kind ``neighbour``, these are the keywords of another article about the same device, if there is one. Otherwise
        they are words that no article has.
        """
        own = request.data.get("article")
        words = self._words(request)
        beside = [item for name, item in ARTICLES.items() if name != own and words and item.keywords[0] == words[0]]
        return " ".join(rng.choice(beside).keywords) if kind == "neighbour" and beside else "something broken help please"

    def _words(self, request: Request) -> Sequence[str]:
        article = request.data.get("article")
        return ARTICLES[article].keywords if article else ()


class Reply:
    """Writes the last stage's answers: the name of the right reply, or of another reply of the same desk.

    Tickets of the third desk are the hardest.
    """

    kinds: Sequence[str] = ("wrong_reply",)
    ease = 1.7
    _SKILLS: Mapping[str, Mapping[str, float]] = {
        "billing": {},
        "technical": {"aggregation": 0.6},
        "other": {"nesting": 1.0, "joins": 1.0, "dates": 0.6},
    }

    def skills(self, request: Request) -> Mapping[str, float]:
        """Return how difficult the request is, by skill, each in [0, 1]; it depends on the ticket's desk."""
        return self._SKILLS[str(request.data["desk"])]

    def right(self, request: Request, rng: random.Random) -> str:
        """Return a text that names the right reply."""
        return rng.choice(("{}", "Reply: {}")).format(request.data["reply"])

    def wrong(self, request: Request, kind: str, rng: random.Random) -> str:
        """Return the name of another reply of the same desk."""
        return rng.choice([name for name in REPLIES[str(request.data["desk"])] if name != request.data["reply"]])


class TicketWriter(Reply):
    """Writes the simulated answers of every stage; the object itself writes replies, the scored answers.

    Nothing here was measured on a real model. Three assumptions are made: routing is easy unless the opening misleads, queries
    get harder with joins, and the replies of the third desk are the hardest.
    """

    def __init__(self, databases: Path) -> None:
        self._stages: dict[str, StageWriter] = {
            "router": Router(), "lookup": Lookup(databases), "search": Search(), "reply": Reply(),
        }  # fmt: skip

    def at(self, stage: str) -> StageWriter:
        """Return the writer of the answers of the stage named ``stage``."""
        return self._stages[stage]
