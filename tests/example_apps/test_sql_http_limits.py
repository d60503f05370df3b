"""Clients of the HTTP service that are slow, many or verbose: each is cut off, and the next one is served."""

import json
import socket
import threading
import time
from contextlib import suppress

import pytest

from examples.sql.http_server import HttpServer
from vinelm.http_limits import HttpLimits

QUICK = {"head_s": 0.3, "body_s": 0.3, "answer_s": 0.3}
POST = b"POST /ask HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture
def running():
    """``running(ask, **limits)`` is the address of a server; all are shut down at the end."""
    servers = []

    def start(ask=lambda body: {}, **limits):
        server = HttpServer(ask, 0, HttpLimits(**limits))
        thread = threading.Thread(target=server.serve)
        thread.start()
        servers.append((server, thread))
        return server.address

    yield start
    for server, thread in servers:
        server.stop()
        thread.join()


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


def test_a_client_that_does_not_take_its_answer_is_cut_off(running):
    address = running(lambda body: {"answer": "x" * 20_000_000}, connections=1, **QUICK)
    with connect(address) as client:
        client.sendall(POST)
        for _ in range(100):  # until there is room for another one
            time.sleep(0.05)
            if is_served(address):
                return
    pytest.fail("the connection was never given back")


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


@pytest.mark.parametrize(("length", "says"), [(b"65537", 413), (b"9" * 15, 413), (b"9" * 5_000, 400)])
def test_bodies_are_bounded(running, length, says, capfd):
    address = running()
    with connect(address) as client:
        client.sendall(b"POST /ask HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + length + b"\r\n\r\n")
        assert status(rest(client)) == says
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("length", [b"-1", b"\xb2", b"1e3", b"", b"0x10"])
def test_a_length_that_is_none_is_refused(running, length):
    with connect(running()) as client:
        client.sendall(b"POST /ask HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + length + b"\r\n\r\n")
        assert status(rest(client)) == 400


@pytest.mark.parametrize(
    "framing", [b"", b"Transfer-Encoding: chunked\r\n", b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n"]
)
def test_a_body_of_unknown_length_is_refused(running, framing):
    with connect(running()) as client:
        client.sendall(b"POST /ask HTTP/1.1\r\nHost: localhost\r\n" + framing + b"\r\n")
        assert status(rest(client)) in (400, 411)


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
