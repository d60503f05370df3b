"""The graph of the support desk with models that answer by script, and what the simulated models write for it."""

import random
from types import SimpleNamespace

import pytest
from langchain_core.messages import AIMessage

from vinelm.backends import create_backends, simulated_catalog
from vinelm.clock import VirtualClock
from vinelm.requests.protocols import CallContext
from vinelm.requests.workflow import StagedWriter
from vinelm.trie import Trie
from vinelm.workflows import load_workflow
from vinelm.workflows.support import support
from vinelm.workflows.support.graph import after_query, desk_of
from vinelm.workflows.support.prompts import REPLIES, chosen

STAGES = ("router", "lookup", "search", "reply")


@pytest.fixture(scope="module")
def workflow():
    return support()


class ScriptedVine:
    """Gives each stage a model that answers what ``answers`` says, and keeps the prompts."""

    def __init__(self, answers):
        self.answers, self.prompts = {stage: list(texts) for stage, texts in answers.items()}, []

    def stage(self, name, fn, **settings):
        def node(state):
            return fn(state, self._model(name))

        return node

    def _model(self, name):
        def invoke(messages):
            self.prompts.append((name, messages[-1].content))
            return AIMessage(self.answers[name].pop(0))

        return SimpleNamespace(invoke=invoke)


def answered(workflow, request, **answers):
    vine = ScriptedVine(answers)
    state = workflow.build(vine).compile().invoke(workflow.graph_input(request))
    return state, vine.prompts


def first(workflow, desk):
    return next(request for request in workflow.requests if request.data["desk"] == desk)


def test_a_billing_ticket_is_looked_up_in_the_database(workflow):
    request = first(workflow, "billing")
    sql, reply = request.data["gold_sql"], request.data["reply"]
    state, prompts = answered(workflow, request, router=["billing"], lookup=[sql], reply=[reply])
    assert [stage for stage, _ in prompts] == ["router", "lookup", "reply"]
    assert state["query"]["row_count"] > 0
    assert str(state["query"]["rows"][0][0]) in prompts[-1][1]
    assert workflow.score(request, state)
    assert not workflow.score(request, {**state, "sql": "SELECT 1"})
    assert not workflow.score(request, {**state, "reply": "none"})


def test_a_query_that_finds_nothing_is_tried_once_more_and_shown(workflow):
    request = first(workflow, "billing")
    state, prompts = answered(
        workflow, request, router=["billing"], lookup=["SELECT nope FROM payment", request.data["gold_sql"]],
        reply=[request.data["reply"]],
    )  # fmt: skip
    assert [stage for stage, _ in prompts] == ["router", "lookup", "lookup", "reply"]
    assert "no such column: nope" in prompts[2][1]
    assert workflow.score(request, state)
    state, prompts = answered(workflow, request, router=["billing"], lookup=["SELEC", "SELEC"], reply=[request.data["reply"]])
    assert [stage for stage, _ in prompts] == ["router", "lookup", "lookup", "reply"]
    assert not workflow.score(request, state)


def test_a_technical_ticket_needs_the_article_and_its_reply(workflow):
    from vinelm.workflows.support.articles import ARTICLES

    request = first(workflow, "technical")
    words = " ".join(ARTICLES[request.data["article"]].keywords)
    state, prompts = answered(workflow, request, router=["Desk: technical"], search=[words], reply=[request.data["reply"]])
    assert [stage for stage, _ in prompts] == ["router", "search", "reply"]
    assert request.data["article"] in prompts[-1][1]
    assert workflow.score(request, state)
    assert not workflow.score(request, {**state, "article": None})


def test_the_wrong_desk_offers_no_right_reply(workflow):
    request = first(workflow, "technical")
    state, prompts = answered(workflow, request, router=["other"], reply=[request.data["reply"]])
    assert [stage for stage, _ in prompts] == ["router", "reply"]
    assert state["reply"] == "none"
    assert not workflow.score(request, state)
    request = first(workflow, "other")
    state, _ = answered(workflow, request, router=["no idea"], reply=[f"Reply: {request.data['reply']}."])
    assert workflow.score(request, state)


def test_labels_never_reach_the_graph(workflow):
    assert {key for request in workflow.requests for key in workflow.graph_input(request)} == {"ticket"}


def test_edges_and_answers_are_read_as_they_are_written():
    assert [desk_of({"desk": desk}) for desk in ("billing", "technical", "other")] == ["lookup", "search", "reply"]
    rows = {"status": "ok", "row_count": 1}
    assert after_query({"query": rows, "lookups": 1}) == "reply"
    assert after_query({"query": rows | {"row_count": 0}, "lookups": 1}) == "lookup"
    assert after_query({"query": rows | {"status": "error"}, "lookups": 2}) == "reply"
    assert chosen("The reply is: REFUND_STATUS.", tuple(REPLIES["billing"]), "none") == "refund_status"
    assert chosen("refund", tuple(REPLIES["billing"]), "none") == "none"


def test_its_trie_has_three_arms_after_the_router(workflow):
    trie = Trie.from_template(workflow.template.bind(("a", "b")))
    assert list(trie.arms(trie.node(["a"], ["router"]))) == ["lookup", "search", "reply"]
    assert trie.n_nodes == 2 + 4 + 8 + 8 + 16 + 4 + 8 + 4
    assert not trie.is_linear
    assert load_workflow("support").template == workflow.template


# -- simulated models --------------------------------------------------------------------------------------------


def test_right_answers_of_every_stage_score_right(workflow):
    writer = workflow.writer
    assert isinstance(writer, StagedWriter)
    for request in workflow.requests:
        rng = random.Random(request.id)
        answers = {stage: [writer.at(stage).right(request, rng)] for stage in STAGES}
        state, _ = answered(workflow, request, **answers)
        assert workflow.score(request, state), request
        assert writer.right(request, random.Random(0)).endswith(request.data["reply"])


@pytest.mark.parametrize("stage", ["router", "search", "reply"])
def test_one_wrong_answer_makes_the_ticket_wrong(workflow, stage):
    writer, desks = workflow.writer, {"search": ("technical",)}.get(stage, ("billing", "technical", "other"))
    for request in workflow.requests[:40]:
        if request.data["desk"] not in desks:
            continue
        for kind in writer.at(stage).kinds:
            rng = random.Random(request.id)
            answers = {name: [writer.at(name).right(request, rng)] * 2 for name in STAGES}
            answers[stage] = [writer.at(stage).wrong(request, kind, rng)]
            state, _ = answered(workflow, request, **answers)
            assert not workflow.score(request, state), (request, kind, state)


def test_a_wrong_query_rarely_finds_what_is_asked(workflow):
    billing = [request for request in workflow.requests if request.data["desk"] == "billing"]
    right = total = 0
    for request in billing:
        for kind in workflow.writer.at("lookup").kinds:
            sql = workflow.writer.at("lookup").wrong(request, kind, random.Random(1))
            state = {"desk": "billing", "reply": request.data["reply"], "sql": sql}
            right, total = right + workflow.score(request, state), total + 1
    assert right / total < 0.2


def simulated(workflow, seed=0):
    return create_backends(simulated_catalog(), workflow=workflow, seed=seed)["simulated"]


def text_of(backend, model, request, stage, prefix):
    call = CallContext(stage=stage, prefix=prefix, clock=VirtualClock(), on_usage=lambda usage: None, request=request)
    return backend.answer(model, call, 500)[0]


def test_each_stage_has_a_task_of_its_own(workflow):
    """A model that is right about the desk may be wrong about the reply: errors of stages are not the same draw."""
    backend, model = simulated(workflow), simulated_catalog()["sim-gemma-27b"]
    right = {"router": [], "reply": []}
    for request in workflow.requests:
        for stage, label in (("router", "desk"), ("reply", "reply")):
            text = text_of(backend, model, request, stage, (model.name,))
            right[stage].append(request.data[label] in text)
            assert text == text_of(simulated(workflow), model, request, stage, (model.name,))
    assert 0.75 < sum(right["router"]) / 228 < 1.0
    assert 0.6 < sum(right["reply"]) / 228 < 0.95
    assert right["router"] != right["reply"]
    other = simulated(workflow, seed=1)
    assert any(
        text_of(other, model, request, "router", (model.name,)) != text_of(backend, model, request, "router", (model.name,))
        for request in workflow.requests
    )
