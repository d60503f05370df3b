"""A profile over each provider, and a report: no key, no token and no server's word is in any file or line."""

import json
from typing import TypedDict

import pytest
from kit.wire.client import ONCE, QUICK
from kit.wire.providers import PROVIDERS, SECRETS
from langgraph.graph import END, START, StateGraph

from vinelm.catalog import Catalog
from vinelm.cli.main import main
from vinelm.profiler import ProfileSettings, profile
from vinelm.profiler.execution.fingerprint import store_identity
from vinelm.requests.workflow import Request, Workflow
from vinelm.template import Loop, Stage, Template
from vinelm.traces import ObservationStore


class State(TypedDict, total=False):
    question: str
    answer: str
    tries: int


def answer(state: State, model) -> State:
    return {"answer": model.invoke(state["question"]).text, "tries": state.get("tries", 0) + 1}


def build(vine):
    graph = StateGraph(State)
    graph.add_node("answer", vine.stage("answer", answer))
    graph.add_node("repair", vine.stage("repair", answer))
    graph.add_edge(START, "answer")
    for stage in ("answer", "repair"):
        graph.add_conditional_edges(stage, vine.route(lambda state: state["tries"] > 1, again="repair", end=END))
    return graph


def workflow(n_requests):
    return Workflow(
        name="secrets",
        template=Template((Stage("answer", ("m",)), Loop((Stage("repair", ("m",)),), 1))),
        build=build,
        requests=[Request(f"q{i}", {"question": f"number {i}"}) for i in range(n_requests)],
        score=lambda request, state: state.get("answer") == "right",
    )


def replies(words):
    """Right, wrong, and three ways to fail, in turn."""

    async def reply(asked, out):
        kind = asked.number % 5
        if kind == 2:
            body, more = words.refusal(429)
            return await out.whole(body, 429, **more)
        if kind == 3:
            return await out.whole(b"<html>s3cret</html>", content_type="text/html")
        if kind == 4:
            body, more = words.refusal(500)
            return await out.whole(body, 500, **more)
        return await words.answering("right" if kind else "wrong")(asked, out)

    return reply


@pytest.mark.parametrize("name", PROVIDERS)
def test_no_secret_is_kept_anywhere(name, transport, kept, credentials, tmp_path, capfd, caplog, monkeypatch):
    monkeypatch.chdir(tmp_path)
    provider, made = PROVIDERS[name], workflow(12 if name == "openai" else 6)
    transport.answers(replies(provider.words))
    client = kept(provider.client(transport, settings=ONCE))
    catalog = Catalog([client.model], {client.model.provider: {**QUICK, **ONCE}})
    backends = {client.model.provider: client.backend}
    with ObservationStore.create("s.db", store_identity(made, catalog, backends)) as store:
        result = profile(made, catalog, backends, store, ProfileSettings(sampler="exhaustive"))
        rows = store.observations()
    kinds = {row.failure for row in rows}
    assert {"rate_limit", "server", None} <= kinds
    for row in rows:  # what a row cost can be worked out again, at any price
        if row.failure is None:
            assert row.cost_usd == client.model.price.cost_usd(row.tokens_in, row.tokens_out, row.tokens_cached)
    assert result.committed_usd > 0
    assert main(["store", "info", "s.db"]) == 0
    assert main(["export", "s.db", "-o", "rows.csv"]) == 0
    if name == "openai":  # what is made of a store alone is made alike for all
        assert main(["estimate", "s.db", "-o", "t.vine", "--max-error", "1"]) == 0
        assert main(["report", "s.db", "t.vine", "-o", "out"]) == 0
        assert main(["explain", "t.vine", "--maximize", "accuracy"]) == 0
    said = "".join(capfd.readouterr()) + caplog.text + repr(result) + repr(rows) + json.dumps(catalog.to_dict())
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    made_of_it = {"t.vine", "report.html"} if name == "openai" else set()
    assert {"s.db", "rows.csv"} | made_of_it <= {path.name for path in files}
    for secret in SECRETS:
        assert secret not in said
        assert [path.name for path in files if secret.encode() in path.read_bytes()] == []
