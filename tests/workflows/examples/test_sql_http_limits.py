"""Clients of the HTTP service that are slow, many or verbose: each is cut off, and the next one is served."""

import json
import socket
import threading
from contextlib import suppress

import pytest

from vinelm.workflows.examples.sql.http_limits import HttpLimits
from vinelm.workflows.examples.sql.http_server import server_of

QUICK = {"head_s": 0.3, "body_s": 0.3, "answer_s": 0.3}
POST = b"POST /ask HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture
def running():
    """``running(ask, **limits)`` is the address of a server; all are shut down at the end."""
    servers = []

    def start(ask=lambda body: {}, **limits):
        server = server_of(ask, 0, HttpLimits(**limits))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        servers.append((server, thread))
        return server.server_address

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


def connect(address):
    return socket.create_connection(address, timeout=30)


def rest(client):
    """All that the server says until it closes; the test fails after 30 s of silence."""
    said = b""
    while True:
        try:
            piece = client.recv(65536)
        except ConnectionError:
            return said
        if not piece:
            return said
        said += piece


def status(said):
    return int(said.split()[1])


def is_served(address):
    with connect(address) as client:
        client.sendall(POST)
        return status(rest(client)) == 200


@pytest.mark.parametrize("begin", [b"", b"POST", b"POST /ask HTTP/1.1\r\nHost: localhost\r\n", POST[:-1]])
def test_a_client_that_trickles_is_cut_off(running, begin):
    """A byte every 20 ms: no single read ever times out."""
    address = running(**QUICK)
    ended = threading.Event()
    with connect(address) as client:
        client.sendall(begin)

        def trickle():
            while not ended.wait(0.02):
                try:
                    client.send(b"\r" if begin == POST[:-1] else b"a")
                except OSError:
                    return

        slow = threading.Thread(target=trickle)
        if begin != POST[:-1]:
            slow.start()
        rest(client)  # the server closed
        ended.set()
        if slow.ident:
            slow.join()
    assert is_served(address)


def test_more_connections_than_allowed_are_refused_at_once(running):
    address = running(connections=3, head_s=30.0)
    idle = [connect(address) for _ in range(3)]
    for client in idle:
        client.sendall(b"POST")
    with connect(address) as one_more:
        said = rest(one_more)
    assert status(said) == 503
    assert json.loads(said.partition(b"\r\n\r\n")[2]) == {"error": "too many connections"}
    for client in idle:
        client.close()
    for _ in range(100):
        if is_served(address):
            return
    pytest.fail("the connections were never given back")


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * 20_000,
        b"GET / HTTP/1.1\r\nX-Long: " + b"a" * 20_000,
        b"GET / HTTP/1.1\r\n" + b"X-Many: 1\r\n" * 2_000,
        b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: 1\r\n" % n for n in range(150)) + b"\r\n",
    ],
)
def test_headers_are_bounded(running, head, capfd):
    address = running()
    with connect(address) as client:
        with suppress(ConnectionError):
            client.sendall(head)
        said = rest(client)
    assert not said or status(said) == 431
    assert is_served(address)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("length", [b"65537", b"9" * 5_000])
def test_bodies_are_bounded(running, length, capfd):
    address = running()
    with connect(address) as client:
        client.sendall(b"POST /ask HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + length + b"\r\n\r\n")
        assert status(rest(client)) == 413
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("length", [b"-1", b"\xb2", b"1e3", b"", b"0x10"])
def test_a_length_that_is_none_is_refused(running, length):
    with connect(running()) as client:
        client.sendall(b"POST /ask HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + length + b"\r\n\r\n")
        assert status(rest(client)) == 411


def test_what_is_no_request_is_answered_in_json(running):
    with connect(running()) as client:
        client.sendall(b"one two three four five\r\n\r\n")
        said = rest(client)
    assert json.loads(said.splitlines()[-1])["error"] == "Bad Request"


def test_a_client_that_leaves_is_no_error(running, capfd):
    asked = threading.Event()
    address = running(lambda body: asked.set() or {"answer": "x" * 10_000_000}, **QUICK)
    client = connect(address)
    client.sendall(POST)
    assert asked.wait(30)
    client.close()
    assert is_served(running())
    assert "Traceback" not in capfd.readouterr().err
