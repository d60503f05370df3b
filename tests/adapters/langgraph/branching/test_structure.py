"""The template that writes itself: read off compiled graphs, printed as code, and compared with given ones."""

import random
from typing import Literal

import pytest
from kit.apps.branching import EXPERTS, ROUTER, State, control_of, corrective, experts, router, stages, supervisor
from kit.apps.echo import App, EchoBackend
from kit.catalogs import make_catalog
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

from vinelm import VineLM
from vinelm.adapters.langgraph import build_graph
from vinelm.adapters.langgraph.build import nodes_of_stages
from vinelm.adapters.langgraph.exits import resolved
from vinelm.adapters.langgraph.structure.code import template_code
from vinelm.adapters.langgraph.structure.reading import template_differences
from vinelm.api.profiling import bind_workflow
from vinelm.errors import WorkflowError
from vinelm.requests.workflow import Request, Workflow
from vinelm.template import Branch, Loop, Parallel, Stage, Template

NAMES = {"Branch": Branch, "END": END, "Loop": Loop, "Parallel": Parallel, "Stage": Stage, "Template": Template}


def workflow(build, template=None):
    settings = {} if template is None else {"template": template}
    requests = [Request("q1", {"plan": []})]
    return Workflow(name="w", build=build, requests=requests, score=lambda request, state: True, **settings)


def read(build):
    return resolved(workflow(build), control_of(None)).template


def drawn(names, edges, choices):
    """A build of stages with plain edges and conditional ones, as (source, targets)."""

    def build(vine):
        graph = StateGraph(State)
        for name, node in stages(vine, "sync", *names.split()):
            graph.add_node(name, node)
        for source, target in edges:
            graph.add_edge(source, target)
        for source, targets in choices.items():
            graph.add_conditional_edges(source, lambda state, to=targets: to[0], targets)
        return graph

    return build


def s(*names):
    return tuple(Stage(name) for name in names)


def all_answerable(template):
    return Template.from_dict(eval(repr(template.to_dict()).replace("'answerable': False", "'answerable': True")))


CASES = {
    "router": (router, (*s("router"), Branch({"search": s("search", "grade"), "write": (), "end": END}), *s("write"))),
    "experts": (experts, (Parallel(s("law", "tax")), *s("judge"))),
    "supervisor": (
        supervisor,
        (Loop((*s("supervisor"), Branch({"law": s("law"), "tax": s("tax"), "end": END})), times=25, memory=2),),
    ),
    "corrective": (corrective, (Loop(s("generate", "grade", "rewrite"), times=25, memory=2),)),
    "bounded": (
        lambda vine: corrective(vine, times=1),
        (Loop(s("generate", "grade", "rewrite"), times=2),),
    ),
    "a chain with a short loop": (lambda vine: App().build(vine), (*s("generate"), Loop(s("repair"), times=25, memory=2))),
    "corrective RAG": (
        drawn("grade rewrite answer", [(START, "grade"), ("rewrite", "grade")], {"grade": ["rewrite", "answer"]}),
        (Loop((*s("grade"), Branch({"rewrite": s("rewrite"), "answer": (*s("answer"), END)})), times=25, memory=2),),
    ),
    "plan and execute": (
        drawn("plan act replan write", [(START, "plan"), ("plan", "act"), ("act", "replan")], {"replan": ["act", "write"]}),
        (*s("plan"), Loop(s("act", "replan"), times=25, memory=2, early_exit=True), *s("write")),
    ),
    "a loop in an arm": (
        drawn("r a b w", [(START, "r"), ("b", "w")], {"r": ["a", "b"], "a": ["a", "w"]}),
        (*s("r"), Branch({"a": (Loop(s("a"), times=25, memory=2, early_exit=True),), "b": s("b")}), *s("w")),
    ),
    "loops in a loop": (
        drawn("plan code test", [(START, "plan"), ("plan", "code"), ("code", "test")], {"test": ["code", "plan", END]}),
        (Loop((*s("plan"), Loop(s("code", "test"), times=5, memory=2, early_exit=True)), times=5, memory=2),),
    ),
    "arms that end and arms that rejoin": (
        drawn("r a b c w", [(START, "r"), ("a", "w"), ("b", "w")], {"r": ["a", "b", "c", END]}),
        (*s("r"), Branch({"a": s("a"), "b": s("b"), "c": (*s("c"), END), "end": END}), *s("w")),
    ),
    "a swarm": (
        drawn("alice bob", [], {START: ["alice", "bob"], "alice": ["bob", END], "bob": ["alice", END]}),
        (Loop((Branch({"alice": s("alice"), "bob": s("bob")}),), times=50, memory=2),),
    ),
    "experts in a loop": (
        drawn("p law tax judge", [(START, "p"), ("p", "law"), ("p", "tax"), (["law", "tax"], "judge")], {"judge": ["p", END]}),
        (Loop((*s("p"), Parallel(s("law", "tax")), *s("judge")), times=25, memory=2),),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_steps_of_a_graph(name):
    build, steps = CASES[name]
    assert all_answerable(read(build)).steps == steps


@pytest.mark.parametrize("name", CASES)
def test_the_code_makes_the_template(name):
    template = read(CASES[name][0])
    code = template_code(template)
    assert eval(code, dict(NAMES)) == template
    assert max(map(len, code.splitlines())) <= 120


def test_code_keeps_every_setting():
    template = Template(
        (
            Stage("a", ("m0",), answerable=False, default="m0"),
            Loop(s("b"), times=3, order="ignored"),
            Branch({"x": (Parallel(s("c", "d")),), "y": END, 'qu"ote': ()}),
        ),
        "oracle",
    )
    assert eval(template_code(template), dict(NAMES)) == template


def test_exits_say_what_is_answerable():
    template = read(router)
    assert {stage.name: stage.answerable for stage in template.stages} == {
        "router": True,  # it may refuse
        "search": False,
        "grade": False,
        "write": True,
    }


def random_graph(rng, n):
    """A graph of n stages in which every stage is reached: each has one to three targets."""
    names = [f"s{i}" for i in range(n)]
    choices = {START: [names[0]]}
    for i, name in enumerate(names):
        onward = names[i + 1 : i + 2] or [END]
        extra = [rng.choice([*names, END]) for _ in range(rng.choice((0, 0, 1, 2)))]
        choices[name] = list(dict.fromkeys([*onward, *extra]))
    return " ".join(names), choices


def test_no_way_of_a_random_graph_is_missing():
    """Of 40 graphs: every template that is read allows each step of the graph, and most allow nothing else."""
    rng = random.Random(7)
    n_exact = 0
    for _ in range(40):
        names, choices = random_graph(rng, rng.randrange(2, 6))
        vine = control_of(None)
        graph = drawn(names, [], choices)(vine).compile()
        template = read(drawn(names, [], choices))
        whole = all_answerable(template)
        lines = template_differences(whole, graph, nodes_of_stages(graph, ()))
        assert not [line for line in lines if line.startswith("the graph goes")], (choices, template)
        n_exact += not lines
    assert n_exact > 20


def unsaid(vine):
    """The place is made of the state: its code names none."""
    graph = drawn("a b", [(START, "a")], {})(vine)
    graph.add_conditional_edges("a", lambda state: state["next"])
    return graph


def unreached(vine):
    graph = StateGraph(State)
    graph.add_node("a", vine.stage("a", lambda state, model: Command(goto="b"), state=State))
    (_, node), *_ = stages(vine, "sync", "b")
    graph.add_node("b", node)
    graph.add_edge(START, "a")
    return graph


def bare(vine):
    graph = StateGraph(State)
    graph.add_node("a", lambda state: {})
    graph.add_edge(START, "a")
    return graph


def staggered(vine):
    """One expert begins a step later than the other."""
    graph = drawn("a b", [(START, "a"), ("tool", "b")], {})(vine)
    graph.add_node("tool", lambda state: {})
    graph.add_edge(START, "tool")
    return graph


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (unsaid, "the edge behind 'a' does not say where it leads: give add_conditional_edges its path_map"),
        (unreached, r"no edge leads to the stage 'b': annotate the node that goes there with -> Command\[Literal\['b'\]\]"),
        (bare, "the graph has no stage: wrap its LLM nodes with vine.stage, or give the template"),
        (staggered, "the stages a, b start together but not in one superstep"),
    ],
)
def test_graphs_that_do_not_say_enough(build, words):
    with pytest.raises(WorkflowError, match=words) as caught:
        read(build)
    assert "\n" not in str(caught.value)


def lines_of(build, template):
    vine = control_of(template)
    graph = build_graph(workflow(build, template), vine)
    return template_differences(template, graph, nodes_of_stages(graph, ()))


def test_a_template_that_fits_has_no_differences():
    assert lines_of(router, ROUTER) == []
    assert lines_of(experts, EXPERTS) == []
    assert lines_of(experts, Template((Parallel(s("tax", "law")), *s("judge")))) == []
    assert lines_of(lambda vine: App().build(vine), Template((*s("generate"), Loop(s("repair"), 2)))) == []
    assert lines_of(lambda vine: App().build(vine), Template(s("generate", "repair"))) == []  # the loop's first turn only


def test_a_node_may_call_its_model_several_times_before_it_is_left():
    searched = (Loop(s("search"), 3, early_exit=True), *s("grade"))
    again = Template((*s("router"), Branch({"search": searched, "write": ()}), *s("write")))
    assert lines_of(router, again) == []


def test_each_difference_is_one_line():
    template = Template((*s("router"), Branch({"search": s("search"), "grade": s("grade"), "write": ()}), *s("write")))
    assert lines_of(router, template) == [
        "the graph goes from 'search' to 'grade', and the template does not: add an arm to the Branch behind Stage('search'), "
        "such as 'grade': (Stage('grade'),), or leave the template out",
        "the template goes from 'router' to 'grade', and no edge of the graph does: remove that arm, or declare where the edge "
        "leads",
        "the template goes from 'search' to 'write', and no edge of the graph does: remove that arm, or declare where the edge "
        "leads",
    ]


def test_where_an_edge_does_not_say_where_it_leads_nothing_is_said():
    template = Template((*s("a"), Branch({"b": s("b"), "end": END})))
    assert lines_of(unsaid, template) == []


def test_bind_workflow_reads_it_once_and_early():
    catalog = make_catalog()
    bound = bind_workflow(workflow(router), catalog, {"test": EchoBackend()})
    assert [stage.name for stage in bound.template.stages] == ["router", "search", "grade", "write"]
    assert bound.template.models == tuple(catalog)
    given = workflow(router, ROUTER)
    assert resolved(given, VineLM(catalog)) is given


def test_a_workflow_without_a_template_is_served():
    vine = control_of(None)
    app = build_graph(workflow(router), vine)
    assert app.invoke({"plan": ["chat"]})["log"] == ["router", "m0", "write", "m0"]


def test_routes_learn_which_stages_their_places_lead_to():
    """A tool stands between the route and the next stages."""
    from kit.apps.branching import Asked

    def build(vine):
        graph = StateGraph(State)
        for name, node in stages(vine, "sync", "a", "b", "c"):
            graph.add_node(name, node)
        graph.add_node("look", lambda state: {})
        graph.add_node("format", lambda state: {})

        def pick(state) -> Literal["b", "c"]:
            return "b"

        graph.add_edge(START, "a")
        graph.add_conditional_edges("look", pick)
        graph.add_conditional_edges("a", vine.route(lambda state: "look", to=["look", "format", END]))
        return graph

    template = read(build)
    vine = control_of(template)
    app = build_graph(workflow(build, template), vine)
    policy = Asked(vine)
    app.invoke({}, context=vine.context(policy=policy))
    assert policy.edges == [(("m0",), False, frozenset({"b", "c"}))]
