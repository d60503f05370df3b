"""Plans end where the graph can: exits are read off the edges, and every loop is bounded in every mode."""

from typing import Literal

import numpy as np
import pytest
from kit.apps.echo import EchoBackend, Typed, control
from kit.catalogs import make_catalog
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

from vinelm import VineLM
from vinelm.adapters.langgraph import build_graph
from vinelm.api.profiling import bind_workflow
from vinelm.errors import ConfigError, WorkflowError
from vinelm.objective import Objective
from vinelm.requests.workflow import Request, Workflow
from vinelm.template import Loop, Stage, Template
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie

MIDDLE = Template((Loop((Stage("answer"), Stage("critique"), Stage("rewrite")), times=3),))


def ask(state: Typed, model):
    return {"a": state.get("a", "") + model.invoke("?").text + ";"}


def never(state: Typed) -> bool:
    return False


def middle(vine):
    """answer, critique, rewrite, answer ...; the only exit stands behind critique."""
    graph = StateGraph(Typed)
    for name in ("answer", "critique", "rewrite"):
        graph.add_node(name, vine.stage(name, ask))
    graph.add_edge(START, "answer")
    graph.add_edge("answer", "critique")
    graph.add_conditional_edges("critique", vine.route(never, again="rewrite", end=END))
    graph.add_edge("rewrite", "answer")
    return graph


def workflow(build, template):
    requests = [Request("q1", {"q": "?"})]
    return Workflow(name="w", template=template, build=build, requests=requests, score=lambda request, state: True)


def exits(build, template):
    bound = bind_workflow(workflow(build, template), make_catalog(), {"test": EchoBackend()}).template
    return [stage.name for stage in bound.stages if stage.answerable]


def annotated(template, catalog):
    """Later answers are better, so that a planner goes as deep as it may; every node costs and lasts the same."""
    trie = Trie.from_template(template.bind(tuple(catalog)))
    success = np.where(trie.depth > 0, 0.1 + 0.05 * trie.depth, 0.0)
    stops, zeros, one = np.full(len(trie), 0.01), np.zeros(len(trie)), np.where(trie.depth > 0, 1.0, 0.0)
    return AnnotatedTrie(
        trie, template.bind(tuple(catalog)), catalog, success, stops, success * stops, one / 1000, zeros, one, zeros
    )


def test_a_loop_that_is_left_in_its_middle_ends_there():
    assert exits(middle, MIDDLE) == ["critique"]
    bound = bind_workflow(workflow(middle, MIDDLE), make_catalog(), {"test": EchoBackend()}).template
    assert [stage.name for stage in bound.invocations] == ["answer", "critique", "rewrite"] * 2 + ["answer", "critique"]
    assert [stage.name for stage in bound.stages] == ["answer", "critique", "rewrite"]


def test_an_exit_through_a_tool_counts():
    def build(vine):
        graph = middle(vine)
        graph.branches.clear()
        graph.add_node("format", lambda state: {})
        graph.add_edge("format", END)
        graph.add_conditional_edges("critique", vine.route(never, again="rewrite", end="format"))
        return graph

    assert exits(build, MIDDLE) == ["critique"]


def test_a_path_map_names_the_end():
    def build(vine):
        graph = middle(vine)
        graph.branches.clear()
        route = vine.route(never, again="more", end="done")
        graph.add_conditional_edges("critique", route, {"more": "rewrite", "done": END})
        return graph

    assert exits(build, MIDDLE) == ["critique"]


def test_an_edge_of_the_applications_own_is_no_exit_beside_a_route():
    def often(state: Typed) -> Literal["critique", "__end__"]:
        return "critique"

    def build(vine):
        graph = middle(vine)
        graph.edges.discard(("answer", "critique"))
        graph.add_conditional_edges("answer", often)
        return graph

    assert exits(build, MIDDLE) == ["critique"]


def test_without_a_route_every_stage_counts_that_may_be_the_last():
    def often(state: Typed) -> Literal["rewrite", "__end__"]:
        return "rewrite"

    def build(vine):
        graph = middle(vine)
        graph.branches.clear()
        graph.add_conditional_edges("critique", often)
        return graph

    assert exits(build, MIDDLE) == ["critique"]


def test_a_chain_ends_at_its_end():
    def build(vine):
        graph = StateGraph(Typed)
        graph.add_node("answer", vine.stage("answer", ask))
        graph.add_node("polish", vine.stage("polish", ask))
        graph.add_edge(START, "answer")
        graph.add_edge("answer", "polish")
        graph.add_edge("polish", END)
        return graph

    assert exits(build, Template((Stage("answer"), Stage("polish")))) == ["polish"]


def test_edges_chosen_by_commands_leave_the_declaration():
    def build(vine):
        graph = StateGraph(Typed)
        graph.add_node("answer", vine.stage("answer", lambda state, model: Command(goto="check"), state=Typed))
        graph.add_node("check", lambda state: Command(goto=END))
        graph.add_node("fix", vine.stage("fix", lambda state, model: Command(goto="check"), state=Typed))
        graph.add_edge(START, "answer")
        return graph

    assert exits(build, Template((Stage("answer"), Loop((Stage("fix"),), 2)))) == ["answer", "fix"]


def test_an_answer_where_no_exit_stands_is_an_error():
    template = Template((Loop((Stage("answer"), Stage("critique", answerable=False), Stage("rewrite")), 2),))
    with pytest.raises(WorkflowError, match=r"exits stand after 'critique'.*declare those answerable"):
        exits(middle, template)


@pytest.mark.parametrize("prepared", ["derived template", "as declared"])
def test_a_planned_request_ends_at_the_exit_and_never_runs_on(prepared):
    """28 of 60 requests died of GraphRecursionError when plans ended after answer or rewrite."""
    catalog, backend = make_catalog(), EchoBackend()
    template = bind_workflow(workflow(middle, MIDDLE), catalog, {"test": backend}).template if "derived" in prepared else MIDDLE
    vine = VineLM(catalog, {"test": backend}, trie=annotated(template, catalog))  # loaded before the edges are known
    app = middle(vine).compile()
    for budget in (0.0025, 0.0045, 0.0085, 1.0):
        backend.calls.clear()
        objective = Objective(maximize="accuracy", max_cost_usd=budget)
        app.invoke({"q": "?"}, context=vine.context(objective))
        assert len(backend.calls) in {2, 5, 8}


def test_a_trie_whose_plans_end_elsewhere_is_refused_at_load():
    catalog = make_catalog()
    vine = VineLM(catalog, {"test": EchoBackend()})
    middle(vine)
    with pytest.raises(ConfigError, match=r"may end after 'answer', 'rewrite', where the graph has no vine.route"):
        vine.load(annotated(MIDDLE, catalog))


@pytest.mark.parametrize("mode", ["enforce", "observe", "off"])
@pytest.mark.parametrize("objective", [None, Objective(maximize="accuracy", max_cost_usd=1.0)])
def test_the_template_bounds_the_loop_in_every_mode(mode, objective):
    catalog, backend = make_catalog(), EchoBackend()
    bound = bind_workflow(workflow(middle, MIDDLE), catalog, {"test": backend}).template
    vine = VineLM(catalog, {"test": backend}, trie=annotated(bound, catalog), mode=mode)
    middle(vine).compile().invoke({"q": "?"}, context=vine.context(objective))
    assert len(backend.calls) == 8


def test_a_template_alone_bounds_the_loop():
    backend = EchoBackend()
    vine = VineLM(make_catalog(), {"test": backend}, template=MIDDLE)
    middle(vine).compile().invoke({"q": "?"})
    assert len(backend.calls) <= 3 * (MIDDLE.depth + 1)  # the template does not say that rewrite has no exit


def test_a_failing_controller_does_not_unbind_the_loop(monkeypatch):
    catalog, backend = make_catalog(), EchoBackend()
    bound = bind_workflow(workflow(middle, MIDDLE), catalog, {"test": backend}).template
    vine = VineLM(catalog, {"test": backend}, trie=annotated(bound, catalog))
    monkeypatch.setattr(vine.planner, "plan", lambda *args, **more: 1 / 0)
    middle(vine).compile().invoke({"q": "?"}, context=vine.context(Objective(maximize="accuracy")))
    assert len(backend.calls) == 8


def looping(times):
    def build(vine):
        graph = StateGraph(Typed)
        graph.add_node("answer", vine.stage("answer", ask))
        graph.add_edge(START, "answer")
        graph.add_conditional_edges("answer", vine.route(never, again="answer", end=END, times=times))
        return graph

    return build


def test_without_a_template_the_edge_bounds_the_loop():
    backend = EchoBackend()
    looping(2)(VineLM(make_catalog(), {"test": backend})).compile().invoke({"q": "?"})
    assert len(backend.calls) == 3


def test_a_loop_without_any_bound_ends_with_a_warning():
    """A model that never satisfied the check made 5,004 calls."""
    backend = EchoBackend()
    app = looping(None)(VineLM(make_catalog(), {"test": backend})).compile()
    with pytest.warns(RuntimeWarning, match=r"the loop to 'answer' was ended after 25 turns"):
        app.invoke({"q": "?"})
    assert len(backend.calls) == 26


def test_a_route_needs_a_positive_bound():
    with pytest.raises(WorkflowError, match="times is 0: it must be at least 1"):
        looping(0)(control())


def test_a_graph_is_served_by_the_template_it_was_built_for():
    vine = VineLM(make_catalog(), {"test": EchoBackend()})
    assert build_graph(workflow(middle, MIDDLE), vine).nodes
