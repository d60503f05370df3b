"""The tickets: generated from a seed, each with the desk that it belongs to, what has to be looked up, and the right reply."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from vinelm.workflow import Request
from vinelm.workflows.nl2sql.bundled import BundledDataset, bundled_dataset
from vinelm.workflows.nl2sql.bundled.domain import Domain
from vinelm.workflows.nl2sql.bundled.seeded_random import Dice
from vinelm.workflows.support import helpdesk
from vinelm.workflows.support.articles import ARTICLES

Desk = Literal["billing", "technical", "other"]
DESKS: tuple[str, ...] = get_args(Desk)
SEED = "vinelm-support-1"


OTHER: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "close_account": (
            "Please delete everything that you have stored about me, and confirm it in writing.",
            "I want to leave. Close my account, and no newsletters any more.",
            "My mother has died. Her access can go, with all that belongs to it.",
            "Remove my address from your records, I sold the devices.",
            "What do I have to sign so that you forget me?",
        ),
        "complaint": (
            "The courier threw the parcel over the fence. I expect somebody to apologise for that.",
            "Your agent hung up on me yesterday. That is no way to treat a customer of six years.",
            "Three promises to call me back, and not one call.",
            "Whoever wrote that letter to my father should be ashamed.",
            "I waited at home for a whole day for your technician, for nothing.",
        ),
        "opening_hours": (
            "Is the shop in the old town open on Sundays?",
            "Until when can I drop in tomorrow to look at the lamps?",
            "Do you close over the holidays?",
            "I work late: can I pick something up after eight?",
            "When does somebody sit at the counter in the station?",
        ),
        "warranty_terms": (
            "If it breaks after two years, who pays: you or the maker?",
            "Does the guarantee pass on when I sell the hub to my neighbour?",
            "Am I covered if my own electrician installs it?",
            "Is a cracked glass included in the guarantee?",
            "How long do you vouch for refurbished devices?",
        ),
        "bulk_offer": (
            "We are fitting out 40 flats and would take doorbells for all of them. What can you do for us?",
            "Do schools get a better price on sensors if they take a hundred?",
            "Our hotel needs one thermostat per room, 85 rooms. Who makes an offer?",
            "Is there a rebate for installers?",
            "What would 200 lamps be for a theatre?",
        ),
        "careers": (
            "Are you hiring in the workshop? I repaired radios for ten years.",
            "Where do I send an application for an internship?",
            "My daughter would like to spend a week with you, from school.",
            "Do you employ people who only work at night?",
            "I speak four languages and would like your job on the phone.",
        ),
    }
)
"""The matters of the third desk as customers word them, by the reply that they want."""
OPENERS = (
    "",
    "Hello, ",
    "Second attempt, nobody answered so far. ",
    "Good morning! ",
    "It has been a long week. ",
    "I paid good money for this! ",  # sounds like billing wherever it stands
    "The app is a mess, by the way. ",  # sounds technical wherever it stands
    "Not sure whether you are the right people. ",
)
MISLEADING = frozenset(OPENERS[5:])


def tickets(data: BundledDataset | None = None) -> tuple[Request, ...]:
    """Return the tickets, the same on every machine; the desks take turns, so that the first n are a fair sample.

    Each row has the ``ticket`` and its labels: ``desk``, ``reply``, and of what the desk looks up either ``db_id`` and
    ``gold_sql``, or ``article``; ``misleading`` says whether its opening sounds like another desk.
    """
    dice = Dice(SEED)
    rows = {
        "billing": list(_billing(data or load_bundled())),
        "technical": [
            {"text": text, "reply": article.reply, "article": name}
            for name, article in ARTICLES.items()
            for text in dice.shuffled(article.wordings)
        ],
        "other": [{"text": text, "reply": reply} for reply, wordings in OTHER.items() for text in wordings],
    }
    return tuple(_interleaved({desk: list(_numbered(desk, rows[desk], dice)) for desk in DESKS}))


def load_bundled(cache_dir: Path | None = None) -> BundledDataset:
    """Return the order database, which is generated on first use, and what is looked up in it."""
    return bundled_dataset(cache_dir, name="support", domains=_domains, sources=(Path(helpdesk.__file__),))


def _domains() -> Sequence[Domain]:
    return (helpdesk.HELPDESK,)


def _billing(data: BundledDataset) -> Iterator[dict[str, Any]]:
    patterns = {reply: _pattern(kind.sql) for reply, kind in helpdesk.LOOKUPS.items()}
    for row in data.questions:
        reply = next(reply for reply, pattern in patterns.items() if pattern.fullmatch(row["gold_sql"]))
        yield {"text": row["question"], "reply": reply, "db_id": row["db_id"], "gold_sql": row["gold_sql"]}


def _pattern(sql: str) -> re.Pattern[str]:
    return re.compile("".join(".+" if part.startswith("{") else re.escape(part) for part in re.split(r"(\{\w+\})", sql)))


def _numbered(desk: str, rows: Sequence[Mapping[str, Any]], dice: Dice) -> Iterator[Request]:
    for number, row in enumerate(dice.shuffled(rows), start=1):
        opener = dice.pick(OPENERS)
        labels = {key: value for key, value in row.items() if key != "text"}
        ticket = {"ticket": opener + str(row["text"]), "desk": desk, "misleading": opener in MISLEADING}
        yield Request(f"{desk}-{number:03d}", {**ticket, **labels})


def _interleaved(by_desk: Mapping[str, list[Request]]) -> Iterator[Request]:
    """All requests, each desk spread evenly over the whole."""
    placed = [
        ((position + 0.5) / len(requests), DESKS.index(desk), request)
        for desk, requests in by_desk.items()
        for position, request in enumerate(requests)
    ]
    for _, _, request in sorted(placed, key=lambda item: item[:2]):
        yield request
