"""The web page with questions for people: served on this machine only, or as one file that is sent to people and read back."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from vinelm.errors import ConfigError, DatasetError
from vinelm.replay.labelling.desk import CHOICES, Desk
from vinelm.traces.served.replayed import sides_of

FORMAT = "vinelm-labels-1"
"""Format name of the file that a filled-in page saves."""
MOST_BYTES = 10_000
"""How many bytes a browser may send at once."""
_TEMPLATE = Path(__file__).parent / "page.html"


def page_of(data: dict[str, Any]) -> str:
    """Return the page as HTML, with ``data`` as JSON for its script. The page loads no other resources, and prompts are
    escaped.
    """
    # "<" only occurs inside of JSON strings, so that no text can end the script element or begin a comment in it.
    text = json.dumps({"choices": CHOICES, **data}).replace("<", "\\u003c")
    page = _TEMPLATE.read_text(encoding="utf-8").replace("@NONCE@", secrets.token_urlsafe(16))
    return page.replace("@DATA@", text)


def file_of(questions: Sequence[Mapping[str, Any]]) -> str:
    """Return one HTML file with these questions, which saves the answers as ``labels.json``."""
    key = sha256(json.dumps(questions).encode()).hexdigest()
    return page_of({"questions": questions, "format": FORMAT, "key": f"vinelm-{key[:16]}"})


def read_labels(path: Path, desk: Desk) -> tuple[str, int]:
    """Store the labels of a file that a page saved; return the person's name and the number of labels.

    Raises:
        DatasetError: The page did not save this file, or the file names an unknown question. No label is stored then.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        who, labels = str(found["who"]), [(int(one["question"]), str(one["choice"])) for one in found["labels"]]
        if found["format"] != FORMAT:
            raise ValueError
        for _, choice in labels:
            sides_of(choice)
    except (ValueError, KeyError, TypeError) as error:
        raise DatasetError(f"{path}: not the answers that a page of `vinelm label --file` saves") from error
    unknown = next((question for question, _ in labels if not desk.knows(question)), None)
    if unknown is not None:
        raise DatasetError(f"{path}: question {unknown} is not of this store; no label was kept")
    for question, choice in labels:
        desk.put_label(question, choice, who)
    return who, len(labels)


class LabelPage(ThreadingHTTPServer):
    """A local web page on which several people answer questions, each under the name entered in the browser.

    The page is on the loopback interface. Its address has a secret part, and only requests whose host is this machine are
    answered. So neither another user's program nor a page of another site can read the prompts.

    Args:
        desk: Gives out questions.
        who: The name that the page shows as the person's name until another is entered.
        port: The port of the page; 0 takes any free port.

    Raises:
        ConfigError: The port is taken, or may not be used.
    """

    daemon_threads = True

    def __init__(self, desk: Desk, *, who: str = "", port: int = 0) -> None:
        self.desk, self.who = desk, who
        self.secret = secrets.token_urlsafe(16)
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except (OSError, OverflowError) as error:
            raise ConfigError(f"port {port} cannot be used here: leave --port out for a free one ({error})") from error

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of a connection, such as one that the browser closed: the label is stored already, or the browser
        asks again.
        """

    @property
    def address(self) -> str:
        """The address to open in a browser of this machine."""
        return f"http://127.0.0.1:{self.server_port}/{self.secret}/"


class _Handler(BaseHTTPRequestHandler):
    server: LabelPage
    timeout = 30
    server_version, sys_version = "vinelm", ""

    def do_GET(self) -> None:
        """Send the page."""
        if self._is_allowed():
            page = page_of({"who": self.server.who}) if self.path == f"/{self.server.secret}/" else None
            self._send(404 if page is None else 200, page or "no such page", "text/html" if page else "text/plain")

    def do_POST(self) -> None:
        """Store a label, or delete the person's last label, as the browser asks; then send the next question."""
        if not self._is_allowed():
            return
        desk, what = self.server.desk, self.path.removeprefix(f"/{self.server.secret}/")
        try:
            size = int(self.headers.get("Content-Length", ""))
            if not 0 <= size <= MOST_BYTES or what not in ("next", "label", "undo"):
                raise ValueError
            asked = json.loads(self.rfile.read(size))
            who = str(asked["who"])[:60]
            if what == "label":
                question, choice = int(asked["question"]), str(asked["choice"])
                sides_of(choice)
                if not desk.knows(question):
                    raise ValueError
                desk.put_label(question, choice, who)
        except (ValueError, KeyError, TypeError):
            self._send(400, "the page sent what is no answer: reload it", "text/plain")
            return
        following = (desk.undo(who) if what == "undo" else None) or desk.next_question(who)
        self._send(200, json.dumps({"question": following, "standing": desk.standing()}), "application/json")

    def _is_allowed(self) -> bool:
        """Return whether the HTTP request may be answered; otherwise send status 404.

        The request must name this machine as the host, contain the secret, and not come from a page of another site.
        """
        here = {f"{name}:{self.server.server_port}" for name in ("127.0.0.1", "localhost")}
        origin = self.headers.get("Origin")
        is_here = self.headers.get("Host") in here and (origin is None or origin.removeprefix("http://") in here)
        secret = f"/{self.server.secret}/".encode()
        if is_here and secrets.compare_digest(self.path.encode("utf-8", "replace")[: len(secret)], secret):
            return True
        self._send(404, "no such page", "text/plain")
        return False

    def _send(self, status: int, text: str, kind: str) -> None:
        body = text.encode("utf-8", "replace")
        self.send_response(status)
        for name, value in (
            ("Content-Type", f"{kind}; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, since addresses contain the secret."""
