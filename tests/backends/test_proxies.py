"""Calls go through the proxy that the environment names, but for hosts that it leaves out."""

import socket
import threading
from contextlib import contextmanager

import pytest
from kit.optional import needs
from kit.wire.client import ONCE, fails
from kit.wire.providers import PROVIDERS

needs("langchain_openai", "langchain_anthropic")


@contextmanager
def refusing_proxy():
    """A proxy on loopback that refuses each request, and keeps the targets that it was asked for."""
    listener, targets = socket.create_server(("127.0.0.1", 0)), []

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                targets.append(connection.recv(65536).split(b" ")[1].decode())
                connection.sendall(b"HTTP/1.1 429 X\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}", targets
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_the_proxy_of_the_environment_and_the_hosts_that_it_leaves_out(name, mode, transport, kept, monkeypatch, credentials):
    transport.answers(PROVIDERS[name].words.answering("four"))
    elsewhere = type("Elsewhere", (), {"url": "http://elsewhere.invalid/v1"})
    with refusing_proxy() as (proxy, targets):
        monkeypatch.setenv("http_proxy", f"http://{proxy}")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert kept(PROVIDERS[name].client(transport)).ask(mode).text == "four"
        assert targets == []
        error, _ = fails(kept(PROVIDERS[name].client(elsewhere, settings=ONCE)), mode)
        assert error.kind == "rate_limit"  # the proxy's own refusal: nothing was asked of a name server
    assert targets[0].startswith("http://elsewhere.invalid/")
