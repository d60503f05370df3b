"""Graphs that branch in the ways in which LangGraph applications do, and what happens where graph and template disagree."""

import operator
from typing import Annotated, Literal, TypedDict

import pytest
from kit.toys.branching import BranchingBackend, branching, cost_of, stage_after, template_of, word_of
from kit.toys.profiling import catalog_for, toy

from vinelm.errors import ConfigError, WorkflowError
from vinelm.evaluation.comparison.fit import Fit
from vinelm.evaluation.comparison.tried import by_request
from vinelm.evaluation.off_policy.buying import BoughtRows
from vinelm.evaluation.off_policy.scores import scored
from vinelm.evaluation.off_policy.steps import StepsByStart
from vinelm.objective import Objective
from vinelm.profiler import CascadeSampler, ExhaustiveSampler, ProfileSettings, check_workflow, profile
from vinelm.profiler.execution.unit import UnitRunner
from vinelm.requests.workflow import Request, Workflow
from vinelm.template import END, Branch, Loop, Stage, Template
from vinelm.traces import ObservationStore

MODELS = ("m0", "m1")


class State(TypedDict, total=False):
    question: str
    said: str
    log: Annotated[list[str], operator.add]


def says(stage):
    def node(state: State, model) -> State:
        return {"said": model.invoke("go on").text, "log": [stage]}

    return node


def workflow_of(build, template, **changes):
    requests = [Request(f"q{i}", {"question": f"number {i}"}) for i in range(6)]
    fields = {"score": lambda request, state: state["said"] == "right", "requests": requests}
    return Workflow(name="branching", template=template, build=build, **(fields | changes))


class Saying:
    """Answers with the word of its stage, or by request where that is a list."""

    is_simulated = True
    is_virtual_time = True

    def __init__(self, **words):
        self.words, self.calls = words, []

    def chat_model(self, model, call):
        from vinelm.backends import OfflineChatModel

        return OfflineChatModel.bound(self, model, call)

    def answer(self, model, call, prompt_chars):
        from vinelm.rows.observation import Usage

        words = self.words[call.stage]
        number = int(call.request.id[1:])
        self.calls.append((call.request.id, call.stage, call.prefix))
        usage = Usage(model=model.name, cost_usd=cost_of(call.request.id, call.prefix), latency_s=1.0)
        return (words if isinstance(words, str) else words[number % len(words)]), usage


def bought(tmp_path, workflow, backend, **settings):
    from vinelm.profiler.execution.fingerprint import store_identity

    catalog, backends = catalog_for(workflow), {"test": backend}
    path = tmp_path / "s.db"
    with ObservationStore.open_or_create(path, store_identity(workflow, catalog, backends)) as store:
        result = profile(workflow, catalog, backends, store, ProfileSettings(**({"sampler": "exhaustive"} | settings)))
        return result, store.observations()


def steps_of(rows):
    return {(row.request_id, len(row.prefix), row.stage, row.arm) for row in rows if row.failure is None}


# -- ways to branch ------------------------------------------------------------------------------------------------


def hand_offs(vine):
    """A supervisor that hands over by Command, as LangGraph's tutorials write it."""
    from langgraph.graph import START, StateGraph
    from langgraph.types import Command

    def supervisor(state: State, model) -> Command[Literal["law", "tax", "__end__"]]:
        said = model.invoke("who?").text
        return Command(goto="__end__" if said == "done" else said, update={"said": said, "log": ["supervisor"]})

    def worker(stage):
        def node(state: State, model) -> Command[Literal["supervisor"]]:
            return Command(goto="supervisor", update={"said": model.invoke("work").text, "log": [stage]})

        return node

    graph = StateGraph(State)
    graph.add_node("supervisor", vine.stage("supervisor", supervisor))
    graph.add_node("law", vine.stage("law", worker("law")))
    graph.add_node("tax", vine.stage("tax", worker("tax")))
    graph.add_edge(START, "supervisor")
    return graph


def test_hand_offs_by_command_are_arms(tmp_path):
    loop = Loop((Stage("supervisor", MODELS), Branch({"law": (Stage("law", MODELS),), "tax": (Stage("tax", MODELS),)})), 2)
    workflow = workflow_of(hand_offs, Template((loop,)))
    backend = Saying(supervisor=["law", "tax", "done"], law="right", tax="wrong")
    result, rows = bought(tmp_path, workflow, backend)
    assert result.stopped_by == "complete"
    assert steps_of(rows) >= {("q0", 1, "supervisor", "law"), ("q1", 1, "supervisor", "tax"), ("q2", 1, "supervisor", None)}
    assert steps_of(rows) >= {("q0", 2, "law", "supervisor"), ("q0", 3, "supervisor", None)}  # no answer behind it
    assert {row.stopped for row in rows if row.request_id == "q2"} == {True}
    assert len(rows) == len({(row.request_id, row.prefix) for row in rows})
    assert len(rows) == 4 * (2 + 4 + 8) + 2 * 2


@pytest.mark.parametrize("repeats", [False, True], ids=["nothing may follow", "the worker might follow again"])
def test_requests_that_go_on_where_the_template_ends_stop_a_run_that_asks_and_a_longer_template_goes_on(tmp_path, repeats):
    """`vinelm try` bought on until its budget was spent: no row of a request that calls more often has an answer. Where
    another stage might have followed, such rows were failures of the models.
    """

    def run(times):
        law = Loop((Stage("law", MODELS),), 2, early_exit=True) if repeats else Stage("law", MODELS)
        loop = Loop((Stage("supervisor", MODELS), Branch({"law": (law,), "tax": (Stage("tax", MODELS),)})), times)
        workflow = workflow_of(hand_offs, Template((loop,)))
        backend = Saying(supervisor=["law", "tax", "done"], law="right", tax="wrong")
        return bought(tmp_path, workflow, backend, stops_cut_off=True)

    result, rows = run(1)
    assert result.stopped_by == "cut-off"
    assert "4 requests go on where the template ends: " in result.message
    assert "is a turn more than its loop's times=1" in result.message
    assert ("q0", 1, "supervisor", "law") not in steps_of(rows)
    _, rows = run(2)
    assert ("q0", 1, "supervisor", "law") in steps_of(rows)  # executed again, since an estimate has to know what came next
    assert len(rows) == len({(row.request_id, row.prefix) for row in rows})


def openings(vine):
    """The request itself decides which stage comes first; a tool runs before it."""
    from langgraph.graph import END as STOP
    from langgraph.graph import START, StateGraph

    graph = StateGraph(State)
    for stage in ("short", "long", "write"):
        graph.add_node(stage, vine.stage(stage, says(stage)))
    graph.add_node("read", lambda state: {"log": ["read"]})
    graph.add_edge(START, "read")
    graph.add_conditional_edges("read", lambda s: "short" if s["question"][-1] in "024" else "long", ["short", "long"])
    graph.add_edge("short", STOP)
    graph.add_edge("long", "write")
    graph.add_edge("write", STOP)
    return graph


OPENINGS = Template((Branch({"short": (Stage("short", MODELS),), "long": (Stage("long", MODELS), Stage("write", MODELS))}),))


@pytest.mark.parametrize("sampler", ["exhaustive", "cascade"])
def test_several_stages_may_come_first(tmp_path, sampler):
    def score(request, state):
        return state["log"] == (["read", "short"] if request.id in ("q0", "q2", "q4") else ["read", "long", "write"])

    workflow = workflow_of(openings, OPENINGS, score=score)
    result, rows = bought(tmp_path, workflow, Saying(short="a", long="b", write="c"), sampler=sampler)
    assert (result.stopped_by, result.coverage) == ("complete", 1.0)
    assert steps_of(rows) >= {("q0", 1, "short", None), ("q1", 1, "long", "write"), ("q1", 2, "write", None)}
    assert len(rows) == 3 * 2 + 3 * (2 + 4)
    assert all(row.success for row in rows if row.stage != "long")


def test_first_stages_with_different_models_are_refused():
    stages = Branch({"short": (Stage("short", ("m0",)),), "long": (Stage("long", MODELS), Stage("write", MODELS))})
    for sampler in (CascadeSampler, ExhaustiveSampler):
        with pytest.raises(ConfigError, match="'short' and 'long' may both come first and allow different models"):
            next(iter(sampler(Template((stages,)), ["q0"], 0).propose(0, ())))


def test_each_arm_may_have_its_own_models(tmp_path):
    """A path has a model for each stage that may come."""
    changes = {"search": ("m0",), "grade": ("m2",), "write": ("m1", "m2")}
    stages = {stage.name: Stage(stage.name, changes.get(stage.name, MODELS), stage.answerable) for stage in
              template_of(MODELS).stages}  # fmt: skip
    searching = Loop((stages["search"], stages["grade"]), 2, early_exit=True)
    arms = Branch({"search": (searching,), "write": (), "stop": END})
    workflow = branching(template=Template((stages["router"], arms, stages["write"])))
    for sampler in ("exhaustive", "cascade"):
        (tmp_path / sampler).mkdir()
        result, rows = bought(tmp_path / sampler, workflow, BranchingBackend(), sampler=sampler)
        assert result.stopped_by == "complete"
        assert {row.stage: {other.model for other in rows if other.stage == row.stage} for row in rows} == {
            "router": set(MODELS), "search": {"m0"}, "grade": {"m2"}, "write": {"m1", "m2"}
        }  # fmt: skip
        wanted = sum(1 for request in workflow.requests for _ in below(workflow.template, request.id, (), ("router",)))
        assert len(rows) == wanted


def below(template, request_id, prefix, stages):
    for model in template.stage(stages[-1]).models:
        cell = (*prefix, model)
        yield cell
        after = stage_after(stages, word_of(request_id, stages[-1], cell))
        if after is not None:
            yield from below(template, request_id, cell, (*stages, after))


def test_a_loop_that_is_left_for_a_tool_is_scored_behind_it(tmp_path):
    """Only the stages of that loop: where another arm goes on, nothing is between it and the end."""

    def build(vine):
        from langgraph.graph import END as STOP
        from langgraph.graph import START, StateGraph

        graph = StateGraph(State)
        for stage in ("router", "draft", "chat"):
            graph.add_node(stage, vine.stage(stage, says(stage)))
        graph.add_node("publish", lambda state: {"said": f"{state['said']}, published"})
        graph.add_edge(START, "router")
        graph.add_conditional_edges("router", lambda s: s["said"], ["draft", "chat"])
        again = vine.route(lambda s: s["said"] == "good", again="draft", end="publish")
        graph.add_conditional_edges("draft", again, ["draft", "publish"])
        graph.add_edge("publish", STOP)
        graph.add_edge("chat", STOP)
        return graph

    router = Stage("router", ("m0",), answerable=False)
    draft, chat = Loop((Stage("draft", ("m0",)),), 3), Stage("chat", ("m0",))
    template = Template((router, Branch({"draft": (draft,), "chat": (chat,)})))
    seen = []
    workflow = workflow_of(build, template, score=lambda request, state: bool(seen.append(state["said"])))
    _, rows = bought(tmp_path, workflow, Saying(router=["draft", "chat"], draft=["bad", "bad", "good"], chat="hello"))
    assert set(seen) == {"bad, published", "good, published", "hello"}
    assert steps_of(rows) >= {("q0", 2, "draft", "draft"), ("q0", 4, "draft", None), ("q2", 2, "draft", None)}


def fan_out(vine):
    """A stage that runs once for each part of the request, side by side."""
    from langgraph.graph import END as STOP
    from langgraph.graph import START, StateGraph
    from langgraph.types import Send

    def part(state: State, model) -> State:
        return {"log": [model.invoke(state["question"]).text]}

    graph = StateGraph(State)
    graph.add_node("plan", vine.stage("plan", says("plan")))
    graph.add_node("work", vine.stage("work", part))
    graph.add_node("join", vine.stage("join", says("join")))
    graph.add_edge(START, "plan")

    def parts(state):
        n = int(state["question"][-1])
        return [Send("work", {"question": str(i)}) for i in range(n)] if n else "join"

    graph.add_conditional_edges("plan", parts, ["work", "join"])
    graph.add_edge("work", "join")
    graph.add_edge("join", STOP)
    return graph


def test_a_fan_out_of_any_length_is_one_invocation_with_one_model(tmp_path):
    def score(request, state):
        return state["log"] == ["plan", *["part"] * int(request.id[1:]), "join"]

    stages = {name: Stage(name, MODELS) for name in ("plan", "work", "join")}
    template = Template((stages["plan"], Branch({"work": (stages["work"],), "none": ()}), stages["join"]))
    workflow = workflow_of(fan_out, template, score=score)
    result, rows = bought(tmp_path, workflow, Saying(plan="a", work="part", join="c"))
    assert result.stopped_by == "complete"
    for row in rows:
        n = int(row.request_id[1:])
        assert row.failure is None
        assert row.calls == (n if row.stage == "work" else 1)
        assert row.success == (row.stage == "join")
        assert row.cost_usd == pytest.approx(row.calls * cost_of(row.request_id, row.prefix))
    assert {row.stage for row in rows if row.request_id == "q0"} == {"plan", "join"}


# -- where graph and template disagree -----------------------------------------------------------------------------


def without_search(**changes):
    """The template lacks the arm to the search."""
    router, write = Stage("router", MODELS), Stage("write", MODELS)
    other = Loop((Stage("search", MODELS), Stage("grade", MODELS)), 2, early_exit=True)
    template = Template((router, Branch({"write": (write,), "stop": END, "grade": (Stage("grade", MODELS), other, write)})))
    return branching(template=template, **changes)


def test_an_arm_that_the_template_lacks_is_a_failed_row_that_says_so(tmp_path):
    workflow = without_search()
    result, rows = bought(tmp_path, workflow, BranchingBackend())
    failed = [row for row in rows if row.failure is not None]
    gone = [row for row in rows if row.depth == 1 and word_of(row.request_id, "router", row.prefix) == "search"]
    assert failed == gone
    assert failed
    assert {row.failure for row in failed} == {"unexpected_arm"}
    assert {row.detail for row in failed} == {
        "after router the graph goes to 'search', where the template has 'write' or 'grade': add an arm for it, with Branch"
    }
    assert all(row.cost_usd > 0 and row.success is None and row.stopped is None for row in failed)
    assert result.failures == {"unexpected_arm": len(failed)}
    assert {row.stage for row in rows} == {"router", "write"}


def test_a_template_that_every_request_leaves_stops_early(tmp_path):
    workflow = without_search(n_requests=20)
    backend = Saying(router="search", search="found", grade="good", write="right")
    result, rows = bought(tmp_path, workflow, backend)
    assert (result.stopped_by, len(rows)) == ("broken", 8)
    assert "after router the graph goes to 'search'" in result.message


def test_the_oracle_stop_is_refused_where_the_template_branches():
    workflow = branching(stop="oracle")
    with pytest.raises(WorkflowError, match="its template branches, and the oracle stop goes on past"):
        UnitRunner(workflow, catalog_for(workflow), {"test": BranchingBackend()})


def test_a_linear_template_of_a_graph_that_branches_is_an_error_as_before(tmp_path):
    stages = {name: Stage(name, MODELS) for name in ("router", "search", "grade", "write")}
    workflow = branching(template=Template(tuple(stages.values())))
    with pytest.raises(WorkflowError, match="after 1 invocations the graph goes to write, its template to 'search'"):
        bought(tmp_path, workflow, Saying(router="write", write="right"))


def test_a_check_follows_one_way_and_names_the_others():
    workflow = workflow_of(openings, OPENINGS)
    report = check_workflow(workflow, catalog_for(workflow))
    assert report.is_ok, report
    details = {item.name: item.detail for item in report.items}
    assert details["template"] == "(short | long > write), over 2 models, stop = workflow"
    assert details["dry run"] == "request 'q0': short, each from a checkpoint; its answers did not lead to long, write"


def test_linear_rows_have_no_arm(tmp_path):
    from kit.toys.profiling import ToyBackend

    _, rows = bought(tmp_path, toy(), ToyBackend())
    assert {row.arm for row in rows} == {None}


def test_plans_of_requests_that_begin_with_different_stages_are_judged(tmp_path):
    workflow = workflow_of(openings, OPENINGS)
    backend = Saying(short="right", long="b", write=["right", "wrong", "right"])
    _, rows = bought(tmp_path, workflow, backend, sampler="exhaustive")
    names = [request.id for request in workflow.requests]
    fit = Fit(rows, OPENINGS, catalog_for(workflow), "latent").within_tried(by_request(rows), len(names))
    ((_, policy),) = fit.choose(Objective(maximize="accuracy"), votes=False)["paths"].parts
    assert isinstance(policy, StepsByStart)
    found = scored(policy, BoughtRows.of(names, rows, OPENINGS))
    assert found.success.tolist() == pytest.approx([1.0, 0.0, 1.0, 1.0, 1.0, 1.0], abs=1e-9)
