"""The real SDK of a provider in each unit, against a server of the test. Notes what a forked unit imports and builds anew."""

import datetime
import gc
import json
import os
import ssl
import sys
from pathlib import Path

from kit.toys.profiling import LoadedWorkflow, State, one_stage, toy
from vinelm.backends import create_backends
from vinelm.catalog import Catalog, Model, Price
from vinelm.template import Stage, Template

FORKED: dict[str, set[str]] = {}


def generate(state: State, model) -> State:
    return {"answer": model.invoke("question " + state["question"]).text}


async def agenerate(state: State, model) -> State:
    return {"answer": (await model.ainvoke("question " + state["question"])).text}


def fill_in(state: State, model) -> State:
    schema = {"title": "form", "description": "an answer", "type": "object", "properties": {"answer": {"type": "string"}}}
    return model.with_structured_output(schema, method="json_schema").invoke("question " + state["question"])


WAYS = {"plain": generate, "async": agenerate, "structured": fill_in}


def load(url, notes, *, way="plain", n_requests=1, **fields):
    """``notes``: a folder; each forked unit leaves a file there with the modules and TLS contexts that are its own."""
    if not FORKED:
        os.register_at_fork(before=lambda: FORKED.update(modules=set(sys.modules)))

    def score(request, state):
        contexts = sum(isinstance(found, ssl.SSLContext) for found in gc.get_objects())  # those of the parent are frozen
        own = sorted(set(sys.modules) - FORKED.get("modules", set()))
        Path(notes, f"{os.getpid()}.json").write_text(json.dumps({"modules": own, "tls_contexts": contexts}))
        return state["answer"] == "four"

    workflow = toy(
        n_requests=n_requests,
        build=one_stage(WAYS[way]),
        template=Template((Stage("generate", ("m0",)),)),
        score=score,
    )
    price = Price(input=1.0, output=4.0, source="a test", as_of=datetime.date(2026, 1, 1))
    given = {"provider": "openai", "model_id": "model-1", "api_base": url, **fields}
    catalog = Catalog([Model(name="m0", engine="east", max_tokens=100, price=price, **given)])
    return LoadedWorkflow(workflow, catalog, create_backends(catalog, workflow=workflow))
