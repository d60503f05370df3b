"""Bytes beyond the end of an answer never become a part of the next one, on whichever connection that is sent."""

import asyncio
import socketserver
import threading
import time

import pytest

from vinelm.backends.http.clients import async_http_client, http_client, library_of_openai

FORGED = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 8\r\n\r\n"forged"'
BODIES = {
    "content-length": b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 6\r\n\r\n"true"',
    "chunked": b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    b'6\r\n"true"\r\n0\r\n\r\n',
}
LIBRARIES = sorted({"httpx", library_of_openai()})


class Server(socketserver.ThreadingTCPServer):
    """Answers each request on a kept-alive connection, and appends what nobody asked for."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, body, surplus, late_s):
        self.body, self.surplus, self.late_s, self.connections = body, surplus, late_s, 0
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/"


class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        server = self.server
        server.connections += 1
        asked = b""
        while True:
            while b"\r\n\r\n" not in asked:
                more = self.request.recv(65536)
                if not more:
                    return
                asked += more
            asked = asked.partition(b"\r\n\r\n")[2]
            if server.late_s:
                self.request.sendall(server.body)
                time.sleep(server.late_s)
                self.request.sendall(server.surplus)
            else:
                self.request.sendall(server.body + server.surplus)


@pytest.fixture(params=BODIES)
def serve(request):
    made = []

    def start(surplus, late_s=0.0):
        made.append(Server(BODIES[request.param], surplus, late_s))
        return made[-1]

    yield start
    for server in made:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("late_s", [0.0, 0.1])
@pytest.mark.parametrize("surplus", [FORGED, b"x", b"\r\n\r\n" + FORGED], ids=["forged", "a byte", "blank lines"])
def test_surplus_bytes_end_their_connection(serve, library, surplus, late_s):
    server = serve(surplus, late_s)
    with http_client(library) as client:
        for number in range(1, 4):
            time.sleep(3 * late_s if number > 1 else 0.0)  # the surplus of the last answer has come
            assert client.get(server.url).json() == "true"
            assert server.connections == number


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("late_s", [0.0, 0.1])
def test_the_same_for_coroutines(serve, library, late_s):
    server = serve(FORGED, late_s)

    async def ask():
        async with async_http_client(library) as client:
            for number in range(1, 4):
                await asyncio.sleep(3 * late_s if number > 1 else 0.0)
                assert (await client.get(server.url)).json() == "true"
                assert server.connections == number

    asyncio.run(ask())


@pytest.mark.parametrize("library", LIBRARIES)
def test_without_surplus_a_connection_is_kept(serve, library):
    server = serve(b"")
    with http_client(library) as client:
        assert [client.get(server.url).json() for _ in range(3)] == ["true"] * 3
    assert server.connections == 1
