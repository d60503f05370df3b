"""Calls go through the proxy that the environment names, but for hosts that it leaves out."""

import asyncio
import socket
import threading
from contextlib import contextmanager

import httpx
import pytest

from vinelm.backends.http.answer_body import BodyLimits
from vinelm.backends.http.transport import AsyncBoundedTransport, BoundedTransport


@contextmanager
def server_that_says(word):
    """A server on loopback that answers each request with the target that it was asked for, after its own word."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                target = connection.recv(65536).split(b" ")[1].decode()
                body = f"{word} {target}".encode()
                connection.sendall(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def asked(way, *urls):
    """The answers to requests over one transport."""
    if way == "sync":
        with httpx.Client(transport=BoundedTransport(httpx, BodyLimits())) as client:
            return [client.get(url).text for url in urls]

    async def ask():
        async with httpx.AsyncClient(transport=AsyncBoundedTransport(httpx, BodyLimits())) as client:
            return [(await client.get(url)).text for url in urls]

    return asyncio.run(ask())


@pytest.mark.parametrize("way", ["sync", "async"])
def test_the_proxy_of_the_environment_and_the_hosts_that_it_leaves_out(way, monkeypatch):
    with server_that_says("proxy") as proxy, server_that_says("server") as server:
        monkeypatch.setenv("http_proxy", f"http://{proxy}")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        found = asked(way, "http://elsewhere.invalid/a", f"http://{server}/b", "http://elsewhere.invalid/c")
    assert found == ["proxy http://elsewhere.invalid/a", "server /b", "proxy http://elsewhere.invalid/c"]
