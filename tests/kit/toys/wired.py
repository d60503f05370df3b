"""A remote provider without a network: real chat models, gates and retries over a wire that answers by itself."""

import threading
import time
from contextlib import contextmanager

from kit.toys.profiling import LoadedWorkflow, State, catalog_for, one_stage, toy
from vinelm.backends.base import Counts
from vinelm.backends.limits.rate_limits import EngineRateLimiter
from vinelm.backends.remote.backend import RemoteBackend
from vinelm.backends.remote.response import Delta
from vinelm.backends.remote.retry import AttemptFailed
from vinelm.backends.remote.transport import AttemptBound, Transport, TransportRequest
from vinelm.backends.settings import ProviderSettings
from vinelm.template import Stage, Template

TOKENS = 30, 12
CALLS = 2
"""That the stage makes."""


class ToyWire(Transport):
    """Each attempt takes a while; the first of a model's calls with ``flaky`` in its prompt is turned down."""

    def __init__(self, seconds=0.0):
        self.seconds = seconds
        self.refused = False

    def check(self, model):
        pass

    def request(self, model, messages, options, *, is_streamed):
        text = str(messages[-1].content)
        return TransportRequest({"prompt": text, "max_tokens": model.max_tokens}, len(text), is_streamed)

    @staticmethod
    def attempt_bound(body):
        return AttemptBound(1000, body["max_tokens"])

    def connect(self, model):
        pass

    def send(self, model, request):
        time.sleep(self.seconds)
        if "flaky" in request.body["prompt"] and not self.refused:
            self.refused = True
            raise AttemptFailed("rate_limit", "slow down", may_be_billed=False)
        yield Delta()
        yield Delta(text="right", finish_reason="stop", counts=Counts(*TOKENS))

    async def asend(self, model, request):
        for delta in self.send(model, request):
            yield delta

    @staticmethod
    def failed(error):
        return None


def generate(state: State, model) -> State:
    model.invoke("plan " + state["question"])
    return {"answer": model.invoke("write " + state["question"]).text}


async def agenerate(state: State, model) -> State:
    await model.ainvoke("plan " + state["question"])
    return {"answer": (await model.ainvoke("write " + state["question"])).text}


def wired(n_requests=8, seconds=0.0, is_async=False):
    """One stage that calls its model twice."""

    workflow = toy(
        n_requests=n_requests,
        build=one_stage(agenerate if is_async else generate),
        template=Template((Stage("generate", ("m0", "m1")),)),
        score=lambda *_: True,
    )
    catalog = catalog_for(workflow)
    setup = ProviderSettings(provider="test", catalog=catalog, table={"backoff_s": 0.001})
    return LoadedWorkflow(workflow, catalog, {"test": RemoteBackend(setup, ToyWire(seconds))})


class CountingLimiter(EngineRateLimiter):
    """``most`` attempts were inside at once, ``tickets`` are all there were."""

    def __init__(self, limits):
        super().__init__(limits)
        self.tickets, self.most, self.now, self.lock = [], 0, 0, threading.Lock()

    @contextmanager
    def admit(self, tokens, sleep, priority=0.0):
        with super().admit(tokens, sleep, priority) as ticket:
            with self.lock:
                self.tickets.append(ticket)
                self.now += 1
                self.most = max(self.most, self.now)
            try:
                yield ticket
            finally:
                with self.lock:
                    self.now -= 1
