"""Chat models that a conditional edge calls are stages: found, and replayed when they are profiled."""

from typing import TypedDict

from kit.catalogs import make_catalog
from langgraph.graph import END, START, StateGraph

from vinelm import Branch, Loop, Request, Stage, Template, VineLM, Workflow
from vinelm.adapters.langgraph import build_graph
from vinelm.adapters.langgraph.build import replay_reason, template_of_graph
from vinelm.template import END as END_STEP


class State(TypedDict, total=False):
    question: str
    answer: str


def build(vine):
    llm, judge = vine.chat_model(), vine.chat_model("judge")

    def write(state: State):
        return {"answer": llm.invoke(state["question"]).text}

    def grade(state: State):
        return END if judge.invoke(state["answer"]).text == "yes" else "write"

    graph = StateGraph(State)
    graph.add_node("write", write)
    graph.add_edge(START, "write")
    graph.add_conditional_edges("write", grade, ["write", END])
    return graph


def workflow(template):
    return Workflow(
        name="edge", template=template, build=build, requests=[Request("q", {"question": "?"})], score=lambda *_: True
    )


TEMPLATE = Template((Loop((Stage("write"), Stage("judge"), Branch({"yes": END_STEP, "no": ()})), times=2),))


def test_a_stage_on_an_edge_is_found_and_replayed():
    catalog = make_catalog()
    given = workflow(TEMPLATE.bind(tuple(catalog)))
    vine = VineLM(catalog, {}, template=given.template)
    app = build_graph(given, vine)
    assert replay_reason(given, app) == "stage 'judge' is called on an edge"


def test_its_template_is_read_from_the_graph():
    vine = VineLM(make_catalog(), {})
    found = template_of_graph(workflow(None), build(vine).compile(), vine.adapter.agents, turns=2)
    assert found == Template((Loop((Stage("write"), Stage("judge")), times=2),))
