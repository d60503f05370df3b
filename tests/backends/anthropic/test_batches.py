"""Anthropic's batches carry no key of ours: which one is ours shows in the names of its calls, once it has ended."""

import time

import pytest
from kit.servers.batch_provider import BatchProvider
from kit.toys.batched import KEY, SECRET, answer, entry

from vinelm.backends.anthropic import batches
from vinelm.backends.anthropic.batches import AnthropicBatches
from vinelm.backends.remote.provider import FoundBatch


@pytest.fixture
def provider(monkeypatch):
    monkeypatch.setenv(KEY, SECRET)
    made = BatchProvider(answer, delay_s=1e6)
    yield made
    made.stop()


def calls(key, n):
    body = {"model": "model-m0", "messages": [{"role": "user", "content": "?"}], "max_tokens": 9}
    return {f"{key}-{k:040}": body for k in range(n)}


def test_a_batch_is_found_once_it_has_ended(provider, monkeypatch):
    api, model = AnthropicBatches(), entry("m0", "anthropic", provider.url)
    since_s = time.time()
    api.submit(model, "0ther", calls("0ther", 2))
    assert api.find(model, "mine", since_s, 3, frozenset()) == FoundBatch(None)  # of another size: not ours
    ours = api.submit(model, "mine", calls("mine", 2))
    assert api.find(model, "mine", since_s, 2, frozenset()) == FoundBatch(None, is_certain=False)
    assert api.answers(model, ours) is None
    provider.end()
    assert api.find(model, "mine", since_s, 2, frozenset()) == FoundBatch(ours)
    assert api.find(model, "none", since_s, 2, frozenset()) == FoundBatch(None)
    assert api.find(model, "mine", since_s, 2, frozenset({ours})) == FoundBatch(None)
    assert api.find(model, "mine", since_s + 1e7, 2, frozenset()) == FoundBatch(ours)  # our clock had leapt
    monkeypatch.setattr(batches, "LEAST_LISTED", 0)
    assert api.find(model, "mine", since_s + 1e5, 2, frozenset()) == FoundBatch(None)  # long before it was recorded
    assert set(dict(api.answers(model, ours))) == set(calls("mine", 2))
    api.close()
