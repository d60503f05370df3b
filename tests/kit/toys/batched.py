"""The toy on models of providers that have batches: a :class:`~kit.servers.batch_provider.BatchProvider` answers.

:func:`serve_forks` profiles it in processes of their own, which end or are killed.
"""

import datetime
import hashlib
import json
import os
import signal
import sys
import threading

from kit.toys.profiling import ANSWERS, LoadedWorkflow, generate, one_stage, toy
from vinelm.backends import create_backends
from vinelm.backends.remote.batches import BatchTimes
from vinelm.catalog import Catalog, Model, Price
from vinelm.profiler import ExecutionConfig, ProfileSettings, profile
from vinelm.profiler.execution.batch_api import BatchPrices
from vinelm.profiler.execution.fingerprint import store_identity
from vinelm.template import Stage, Template
from vinelm.traces import ObservationStore

KEY = "TOY_BATCH_KEY"
SECRET = "sk-canary-batch"
PRICE = Price(input=2.0, output=8.0, cached=0.2, cache_write=2.5, source="test", as_of=datetime.date(2026, 1, 1))
QUICK = BatchTimes(wait_s=60.0, collect_s=20.0, quiet_s=0.25, poll_s=0.05, settle_s=0.3)
PROVIDERS = ("openai", "anthropic", "gemini")


def answer(model, prompt):
    return ANSWERS[hashlib.sha256(f"{model} {prompt}".encode()).digest()[0] % len(ANSWERS)]


def entry(name, provider, url, **fields):
    base = url + {"openai": "/v1", "gemini": "/gemini"}.get(provider, "")
    plain = {
        "model_id": f"model-{name}",
        "engine": provider,
        "price": PRICE,
        "max_tokens": 100,
        "timeout_s": 20.0,
        "api_key_env": KEY,
    }
    return Model(name=name, provider=provider, api_base=base, **{**plain, **fields})


def loaded(url, providers=PROVIDERS, n_requests=3, depth=2, has_batches=True, **changes):
    """One model of each of the providers, m0 on the first."""
    os.environ.setdefault(KEY, SECRET)
    if depth == 1:
        names = tuple(f"m{k}" for k in range(len(providers)))
        flat = {"build": one_stage(generate), "template": Template((Stage("generate", names),)), "score": lambda *_: True}
        depth, changes = 2, {**flat, **changes}
    workflow = toy(n_requests=n_requests, n_models=len(providers), depth=depth, **changes)
    models = [entry(f"m{k}", provider, url) for k, provider in enumerate(providers)]
    table = {"stream": False, "backoff_s": 0.001, **({"batches": True} if has_batches else {})}
    catalog = Catalog(models, dict.fromkeys(dict.fromkeys(providers), table))
    return LoadedWorkflow(workflow, catalog, create_backends(catalog))


def settings(workers=64, timed_paths=0, times=QUICK, **changes):
    prices = BatchPrices(times=times, timed_paths=timed_paths)
    fields = {"sampler": "exhaustive", "budget_usd": 10.0, "keep_going": True, "batch_prices": prices}
    return ProfileSettings(execution=ExecutionConfig(isolation="thread", workers=workers), **{**fields, **changes})


def run(made, path, how=None):
    identity = store_identity(made.workflow, made.catalog, made.backends)
    with ObservationStore.open_or_create(path, identity) as store:
        return profile(made.workflow, made.catalog, made.backends, store, how or settings())


def dying(count):
    """Kill this process at the count-th of the moments between two events of a batch or a row."""
    from sqlalchemy import event

    from vinelm.backends.remote import batches
    from vinelm.traces.databases import database

    left = [count]

    def step(*_):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    submit = batches.BatchGate._submit

    def submitting(self, calls):
        step()
        submit(self, calls)
        step()

    batches.BatchGate._submit = submitting
    for api in _apis():
        _around(type(api), "submit", step)
        _around(type(api), "answers", step)
    opened = database.Database.__init__

    def opening(self, *given, **named):
        opened(self, *given, **named)
        event.listen(self._engine, "commit", step)

    database.Database.__init__ = opening


def _apis():
    from vinelm.backends.anthropic.batches import AnthropicBatches
    from vinelm.backends.gemini.batches import GeminiBatches
    from vinelm.backends.openai.batches import OpenAIBatches

    return OpenAIBatches(), AnthropicBatches(), GeminiBatches()


def _around(kind, name, step):
    real = getattr(kind, name)

    def method(self, *given):
        found = real(self, *given)
        step()
        return found

    setattr(kind, name, method)


def serve_forks():
    """For each line of stdin fork a process that profiles, and print how it ended: imports are paid for once."""
    for backend in loaded("http://127.0.0.1:9").backends.values():
        backend.preload()
    from anthropic.resources.messages import batches as _
    from google.genai import batches as _  # noqa: F401, F811
    from openai.resources import batches, files  # noqa: F401

    print("ready", flush=True)
    for line in sys.stdin:
        how = json.loads(line)
        pid = os.fork()
        if pid == 0:
            made = loaded(how["url"], **how.get("loaded", {}))
            if how.get("die"):
                dying(how["die"])
            if how.get("die_after_s"):
                threading.Timer(how["die_after_s"], os.kill, (os.getpid(), signal.SIGKILL)).start()
            code = 1
            try:
                run(made, how["store"], settings(**how.get("settings", {})))
                code = 0
            finally:
                os._exit(code)
        print(os.waitpid(pid, 0)[1], flush=True)
