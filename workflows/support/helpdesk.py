"""The order database of the support desk: customers, purchases and payments, and the questions that a desk looks up in it."""

from __future__ import annotations

from vinelm.workflows.nl2sql.bundled.domain import Ask, Domain, Row, Tables, ask
from vinelm.workflows.nl2sql.bundled.names import people
from vinelm.workflows.nl2sql.bundled.seeded_random import Dice, later

DB_ID = "helpdesk"
CUSTOMERS, PURCHASES = 60, 260
FIRST_ORDER = 4001

SCHEMA = """
CREATE TABLE customer (
    customer_id INTEGER PRIMARY KEY, customer_name TEXT NOT NULL, email TEXT NOT NULL, plan TEXT NOT NULL);
CREATE TABLE purchase (
    order_id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customer (customer_id), item TEXT NOT NULL,
    ordered_on DATE NOT NULL, shipped_on DATE);
CREATE TABLE payment (
    payment_id INTEGER PRIMARY KEY, order_id INTEGER NOT NULL REFERENCES purchase (order_id), paid_on DATE NOT NULL,
    amount_cents INTEGER NOT NULL, status TEXT NOT NULL);
"""
ITEMS = ("speaker", "thermostat", "camera", "router", "lamp", "doorbell", "hub", "sensor")


def email_of(customer: int) -> str:
    """Return a customer's address."""
    return f"user{customer:03d}@mail.example"


def fill(dice: Dice) -> Tables:
    """60 customers, 260 purchases, some 330 payments, of which a few are duplicates, failed or refunded."""
    customers: list[Row] = [
        (number, name, email_of(number), dice.skewed(("basic", "plus", "family")))
        for number, name in enumerate(people(dice, CUSTOMERS), start=1)
    ]
    purchases = [_purchase(dice, number) for number in range(FIRST_ORDER, FIRST_ORDER + PURCHASES)]
    payments: list[Row] = []
    for order in purchases:
        payments += _payments(dice, order, len(payments))
    return {"customer": customers, "purchase": purchases, "payment": payments}


def _purchase(dice: Dice, number: int) -> Row:
    ordered = dice.day("2025-01-02", "2025-12-20")
    return (number, dice.between(1, CUSTOMERS), dice.pick(ITEMS), ordered, dice.maybe(later(ordered, dice.between(1, 6)), 0.2))


def _payments(dice: Dice, order: Row, before: int) -> list[Row]:
    cents = dice.between(1500, 24000)
    statuses = ["settled"]
    if dice.chance(0.15):
        statuses.append("settled")  # charged twice
    if dice.chance(0.15):
        statuses.insert(0, "failed")
    if dice.chance(0.2):
        statuses.append("refunded")
    return [
        (before + turn, order[0], later(str(order[3]), turn - 1), cents, status)
        for turn, status in enumerate(statuses, start=1)
    ]


_ORDERS = tuple(str(number) for number in range(FIRST_ORDER, FIRST_ORDER + PURCHASES))
_EMAILS = tuple(email_of(number) for number in range(1, CUSTOMERS + 1))
_MONTHS = tuple(
    f"{name}|2025-{number:02d}"
    for number, name in enumerate(
        (
            *("January", "February", "March", "April", "May", "June"),
            *("July", "August", "September", "October", "November", "December"),
        ),
        start=1,
    )
)

LOOKUPS: dict[str, Ask] = {
    "refund_duplicate": ask(
        (
            "Order {order}: you took the money twice. How many payments went through, and how much is that in total?",
            "My card shows more than one charge for order {order}. Please check how often and how much I really paid.",
            "I think that I was billed double for {order}. Can you tell me the number of settled charges and their sum?",
        ),
        "SELECT COUNT(*), SUM(amount_cents) FROM payment WHERE order_id = {order} AND status = 'settled'",
        times=14,
        order=_ORDERS[:60],
    ),
    "refund_status": ask(
        (
            "I sent order {order} back. When was it refunded, and how much?",
            "Still waiting for the money for {order}, or did I miss it? Date and amount of the refund, please.",
        ),
        "SELECT paid_on, amount_cents FROM payment WHERE order_id = {order} AND status = 'refunded'",
        times=12,
        order=_ORDERS[60:200],
    ),
    "statement": ask(
        (
            "For my taxes I need what I paid you in {month}. The account is {email}.",
            "How much did {email} pay in all in {month}? Failed and refunded charges do not count.",
        ),
        """SELECT SUM(p.amount_cents) FROM payment AS p JOIN purchase AS o ON o.order_id = p.order_id
           JOIN customer AS c ON c.customer_id = o.customer_id
           WHERE c.email = '{email}' AND p.status = 'settled' AND strftime('%Y-%m', p.paid_on) = '{month}'""",
        times=12,
        month=_MONTHS,
        email=_EMAILS[:30],
    ),
    "open_orders": ask(
        (
            "Which of my orders ({email}) have not left your warehouse yet? Order numbers and dates, please.",
            "Nothing arrived. What did {email} order, and when, that was never shipped?",
        ),
        """SELECT o.order_id, o.ordered_on FROM purchase AS o JOIN customer AS c ON c.customer_id = o.customer_id
           WHERE c.email = '{email}' AND o.shipped_on IS NULL""",
        times=12,
        email=_EMAILS[30:],
    ),
}
"""What the billing desk looks up, by the reply that follows from it."""

HELPDESK = Domain(DB_ID, SCHEMA, fill, tuple(LOOKUPS.values()))
