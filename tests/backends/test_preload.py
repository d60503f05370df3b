"""What a backend does ahead of its first call: it calls nobody, and leaves nothing that would not survive a fork."""

import os
import threading
from pathlib import Path

import pytest
from kit.optional import needs
from kit.wire.providers import PROVIDERS

from vinelm.requests.protocols import Preloads

needs("langchain_openai", "langchain_anthropic", "langchain_aws", "langchain_google_genai")
pytestmark = pytest.mark.usefixtures("credentials")


@pytest.fixture(params=PROVIDERS)
def made(request, transport, kept):
    transport.answers(PROVIDERS[request.param].words.answering("four"))
    return kept(PROVIDERS[request.param].client(transport))


def open_sockets():
    """Descriptors of sockets of this process."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:
            continue
        if target.startswith("socket:"):
            found.add(target)
    return found


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="lists descriptors")
def test_it_calls_nobody_and_leaves_no_thread_and_no_connection(made, transport):
    threads, sockets = set(threading.enumerate()), open_sockets()
    assert isinstance(made.backend, Preloads)
    made.backend.preload()
    assert transport.asked == []
    assert set(threading.enumerate()) <= threads
    assert open_sockets() <= sockets
    assert made.ask("invoke").text == "four"


def test_a_missing_key_is_left_to_the_call(made, monkeypatch):
    """A catalog may hold models that no stage uses."""
    for name in ("MY_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
    made.backend.preload()


def test_nothing_is_called_through_a_method_that_a_tracer_has_replaced(monkeypatch, transport):
    from langchain_openai import ChatOpenAI
    from openai.resources.chat.completions import Completions

    from vinelm.backends.remote.rehearsal import rehearse

    monkeypatch.setattr("vinelm.backends.remote.rehearsal._REHEARSED", set())
    seen, own = [], Completions.create

    def traced(self, *args, **kwargs):
        seen.append(kwargs)
        return own(self, *args, **kwargs)

    monkeypatch.setattr(Completions, "create", traced)
    rehearse(ChatOpenAI(model="m", api_key="none", base_url=transport.url))
    assert seen == []
    monkeypatch.setattr(Completions, "create", own)
    made = []
    monkeypatch.setattr("vinelm.backends.remote.rehearsal._response", lambda request, **said: made.append(request))
    rehearse(ChatOpenAI(model="m", api_key="none", base_url=transport.url))
    assert made, "else this test shows nothing"
    count = len(made)
    rehearse(ChatOpenAI(model="another", api_key="none", base_url=transport.url))
    assert len(made) == count, "once for each class: a catalog may have hundreds of models"
    assert transport.asked == []
