"""The workflow of the support desk: a router, three branches, of which two look facts up, and one reply."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from vinelm.requests.workflow import Request, Workflow
from vinelm.template import Branch, Loop, Stage, Template
from vinelm.workflows.nl2sql.answers import sql_signal
from vinelm.workflows.nl2sql.databases import Databases
from vinelm.workflows.nl2sql.dataset import Dataset, GoldResults
from vinelm.workflows.support import prompts
from vinelm.workflows.support.graph import LOOKUPS, make_build
from vinelm.workflows.support.simulated_writer import TicketWriter
from vinelm.workflows.support.tickets import load_bundled, tickets

LABELS = ("desk", "reply", "misleading", "db_id", "gold_sql", "article")


class TicketScorer:
    """Scores a reply, which is right if the desk, the reply and the looked-up facts are right.

    A query is right if its full result equals that of the labelled query, an article if it is the labelled article.
    """

    def __init__(self, dataset: Dataset) -> None:
        self.databases = dataset.databases
        self.gold = GoldResults(dataset)

    def __call__(self, request: Request, state: Mapping[str, Any]) -> bool:
        """Return whether the final state has the right answer to the ticket."""
        label = request.data
        if state.get("desk") != label["desk"] or state.get("reply") != label["reply"]:
            return False
        if label["desk"] == "technical":
            return bool(state.get("article") == label["article"])
        if label["desk"] == "billing":
            sql = state.get("sql")
            return isinstance(sql, str) and self.gold.is_right(request, self.databases.recall(label["db_id"], sql))
        return True


def found(state: Mapping[str, Any]) -> str | None:
    """Return the outcome of the stage that ran last, in one word or two; None after the router, which has no outcome.

    After the reply it is ``"reply"`` or ``"no reply"``, after a search ``"article"`` or ``"no article"``. After a query it is
    the signal of :func:`~vinelm.workflows.nl2sql.answers.sql_signal`.
    """
    if "reply" in state:
        return "no reply" if state["reply"] == "none" else "reply"
    if "query" in state:
        return sql_signal(state["query"])
    if "article" in state:
        return "no article" if state["article"] is None else "article"
    return None


def same_reply(one: str, other: str) -> bool:
    """Return whether two replies are the same. The text ``none`` (no reply was chosen) is not equal to anything."""
    return one == other != "none"


def support() -> Workflow:
    """Return the workflow of the support desk with its bundled tickets."""
    data = load_bundled()
    databases = Databases(data.databases)
    requests = tickets(data)
    return Workflow(
        name="support",
        template=template(),
        build=make_build(databases),
        requests=requests,
        score=TicketScorer(Dataset(requests, databases)),
        labels=LABELS,
        writer=TicketWriter(data.databases),
        signal=found,
        agree=same_reply,
        answer=("reply",),
        resources={**databases.digests(["helpdesk"]), "prompts": prompts.digest(), "articles": _articles_digest()},
    )


def template() -> Template:
    """Return the template: the router's branches rejoin at the reply, and the billing desk may query twice."""
    return Template(
        (
            Stage("router", answerable=False),
            Branch(
                {
                    "billing": (Loop((Stage("lookup", answerable=False),), times=LOOKUPS, early_exit=True),),
                    "technical": (Stage("search", answerable=False),),
                    "other": (),
                }
            ),
            Stage("reply"),
        )
    )


@cache
def _articles_digest() -> str:
    return hashlib.sha256((Path(__file__).parent / "articles.py").read_bytes()).hexdigest()
