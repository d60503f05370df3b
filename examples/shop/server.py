"""A shop far away: customers, orders and products in SQLite behind HTTP on this machine, with a delay for the distance."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

PRODUCTS = ("lamp", "desk", "chair", "shelf", "mirror", "rug", "clock", "sofa")
CUSTOMERS = 60
_TABLES = """
CREATE TABLE products (id TEXT PRIMARY KEY, name TEXT, price REAL);
CREATE TABLE orders (id TEXT PRIMARY KEY, customer TEXT, status TEXT);
CREATE TABLE items (order_id TEXT, product TEXT, pieces INTEGER);
"""


class Shop:
    """The shop's data, the same at each start. Thread-safe.

    Attributes:
        distance_s: seconds that each answer takes, as if the shop were that far away.
        reads: requests that were answered.
    """

    def __init__(self) -> None:
        self.distance_s, self.reads = 0.0, 0
        self._lock = Lock()
        self._tables = sqlite3.connect(":memory:", check_same_thread=False)
        self._tables.executescript(_TABLES)
        for at, name in enumerate(PRODUCTS):
            self._tables.execute("INSERT INTO products VALUES (?, ?, ?)", (f"P{100 + at}", name, 10.5 + 7 * at))
        for customer in range(CUSTOMERS):
            for number in range(1 + (customer * 7) % 4):
                order = f"#W{1000 + 10 * customer + number}"
                self._tables.execute("INSERT INTO orders VALUES (?, ?, 'sent')", (order, customer_id(customer)))
                for item in {(customer + 3 * number) % 8, (customer * number + 5) % 8}:
                    self._tables.execute("INSERT INTO items VALUES (?, ?, ?)", (order, f"P{100 + item}", 1 + customer % 3))

    def answer(self, kind: str, name: str) -> dict[str, Any] | None:
        """Return what is known of a customer, an order or a product; None if there is none of that name."""
        with self._lock:
            self.reads += 1
            if kind == "customers":
                orders = [row[0] for row in self._rows("SELECT id FROM orders WHERE customer = ? ORDER BY id", name)]
                return {"customer": name, "orders": orders} if orders else None
            if kind == "orders":
                items = self._rows("SELECT product, pieces FROM items WHERE order_id = ? ORDER BY product", name)
                found = [{"product": product, "pieces": pieces} for product, pieces in items]
                return {"order": name, "items": found} if found else None
            for product, title, price in self._rows("SELECT id, name, price FROM products WHERE id = ?", name):
                return {"product": product, "name": title, "price": price}
            return None

    def _rows(self, query: str, name: str) -> list[Any]:
        return self._tables.execute(query, (name,)).fetchall()


def customer_id(number: int) -> str:
    """Return the name of a customer, such as ``mia_li_1007``."""
    first, last = ("mia", "omar", "ana", "yan")[number % 4], ("li", "rossi", "kaya")[number % 3]
    return f"{first}_{last}_{1000 + number}"


@contextmanager
def serving(shop: Shop) -> Iterator[str]:
    """Answer on a free port of 127.0.0.1 while the block runs; yields the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(shop.distance_s)
            kind, _, name = self.path.strip("/").replace("%23", "#").partition("/")
            found = shop.answer(kind, name) if kind in ("customers", "orders", "products") else None
            self.send_response(404 if found is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
