"""The public standard suite for chat models, over the simulated kind of backend that the conformance tests use."""

import pytest
from kit.apps.chat import chat_control

from vinelm import VineChatModel

pytest.importorskip("langchain_tests")
from langchain_tests.unit_tests import ChatModelUnitTests


class TestStandard(ChatModelUnitTests):
    @pytest.fixture
    def benchmark(self):
        """Runs once: no test asserts a wall-clock time."""
        return lambda timed: timed()

    @property
    def chat_model_class(self):
        return VineChatModel

    @property
    def chat_model_params(self):
        return {"vine": chat_control(), "stage": "generate"}

    @property
    def standard_chat_model_params(self):
        """All of the suite's, but for the key: keys come from the environment variables that a catalog names."""
        params = dict(super().standard_chat_model_params)
        assert params.pop("api_key")
        assert set(params) == {"temperature", "max_tokens", "timeout", "stop", "max_retries"}
        return params
