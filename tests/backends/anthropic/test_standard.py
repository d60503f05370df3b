"""The public standard suite for chat models, over the Anthropic backend's class."""

from importlib.util import find_spec

import pytest
from kit.wire.client import KEY, Client

pytest.importorskip("langchain_tests")
from langchain_tests.unit_tests import ChatModelUnitTests

from vinelm.backends.remote.chat_model import RemoteChatModel


@pytest.mark.skipif(find_spec("langchain_anthropic") is None, reason="langchain-anthropic is not installed")
@pytest.mark.filterwarnings("ignore:Unrecognized structured output method")  # which the package takes for another one
class TestStandard(ChatModelUnitTests):
    @pytest.fixture(autouse=True)
    def _key(self, monkeypatch):
        monkeypatch.setenv("MY_KEY", KEY)

    @pytest.fixture
    def benchmark(self):
        """Runs once: no test asserts a wall-clock time."""
        return lambda timed: timed()

    @property
    def chat_model_class(self):
        return RemoteChatModel

    @property
    def chat_model_params(self):
        return {"binding": Client("http://127.0.0.1:9", provider="anthropic", api_key_env="MY_KEY").chat().binding}
