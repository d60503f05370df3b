"""An answer that came whole, but after its time, is used: it is paid for."""

from kit.wire.client import Client
from kit.wire.openai_format import answering
from kit.wire.server import WireServer, end_connections

from vinelm.clock import WallClock
from vinelm.requests.protocols import CallContext


class Late(WallClock):
    """Every look at it is forty seconds later; a call may take sixty."""

    looks = 0

    def now(self):
        self.looks += 1
        return self.looks * 40.0


def test_a_whole_answer_that_is_late_is_handed_out(monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-canary")
    server = WireServer()
    server.answers(answering("four"))
    made = Client(server.url, provider="openai", api_key_env="MY_KEY", settings={"stream": False})
    call = CallContext(stage="s", prefix=("m",), clock=Late(), on_usage=made.usages.append)
    assert made.backend.chat_model(made.model, call).invoke("?").text == "four"
    assert [(usage.failure, usage.tokens_out) for usage in made.usages] == [(None, 7)]
    made.close()
    server.stop()
    end_connections()
