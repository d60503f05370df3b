"""Builds the prompts of the support desk, and parses the models' answers."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence

SYSTEM = "You work at the support desk of a shop for smart-home devices. Answer in the requested form and with nothing else."
ROUTE = """Which desk does this ticket belong to? Answer with one word.
billing: charges, refunds, statements, orders that have not been shipped
technical: a device or the app does not work
other: everything else

Ticket: {ticket}"""
LOOKUP = """Write one SQLite SELECT statement that looks up what the customer asks about. Amounts are in cents.

{schema}

Ticket: {ticket}{earlier}"""
SEARCH = """Write four words to search the help articles with: the device, then the problem.

Ticket: {ticket}"""
REPLY = """Choose the reply to this ticket. Answer with its name.
{replies}

What the desk found: {found}

Ticket: {ticket}"""

REPLIES: Mapping[str, Mapping[str, str]] = {
    "billing": {
        "refund_duplicate": "says what was charged, and refunds what was charged twice",
        "refund_status": "says when and how much was refunded",
        "statement": "states what was paid",
        "open_orders": "lists what has not been shipped, and apologises",
    },
    "technical": {
        "send_steps": "sends the steps of the article",
        "replace_device": "replaces a broken device",
        "engineer": "books a call with an engineer, for what is dangerous or not solved by an article",
    },
    "other": {
        "close_account": "closes the account and deletes its data",
        "complaint": "apologises and passes the complaint on",
        "opening_hours": "gives the opening hours of the shops",
        "warranty_terms": "explains the guarantee",
        "bulk_offer": "offers a price for many pieces",
        "careers": "names the page with open positions",
    },
}
"""The possible replies of each desk: by name of the reply, what it says."""
_NAME = re.compile(r"[a-z_]+")


def reply_prompt(ticket: str, desk: str, found: str) -> str:
    """Return the last stage's prompt: the ticket, the facts that the desk found, and the possible replies of the desk."""
    replies = "\n".join(f"{name}: {meaning}" for name, meaning in REPLIES[desk].items())
    return REPLY.format(replies=replies, found=found, ticket=ticket)


def chosen(text: str, names: Sequence[str], otherwise: str) -> str:
    """Return the first of ``names`` that occurs in a model's answer; ``otherwise`` if none does."""
    return next((word for word in _NAME.findall(text.lower()) if word in names), otherwise)


def digest() -> str:
    """Return a hash of all prompts and replies, which changes if any of them changes."""
    texts = [SYSTEM, ROUTE, LOOKUP, SEARCH, REPLY, *(f"{desk} {replies}" for desk, replies in REPLIES.items())]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()
