"""Checking a workflow: each fault is one failed item that says what to mend, and nothing is called."""

import json
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Annotated, Literal

import pytest
from kit.toys.chat import APP_VINE
from kit.toys.profiling import State, build, catalog_for, one_stage, plain_edge, toy
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from langsmith.utils import get_env_var, tracing_is_enabled
from pydantic import BaseModel, Field

from vinelm.cli.inputs import catalog_for_check
from vinelm.profiler import check_workflow
from vinelm.profiler.readiness import CheckReport
from vinelm.template import Branch, Loop, Stage, Template
from vinelm.workflows.registry import load_workflow


def items(workflow, catalog=None):
    report = check_workflow(workflow, catalog or catalog_for(workflow))
    assert all("\n" not in item.detail for item in report.items)
    assert report.is_ok == all(item.is_ok for item in report.items)
    return {item.name: item for item in report.items}


@pytest.mark.parametrize("stop", ["oracle", "workflow"])
@pytest.mark.parametrize("edge", [None, plain_edge], ids=["vine.route", "plain edge"])
def test_a_sound_workflow_passes_every_item(stop, edge):
    found = items(toy(stop=stop, build=partial(build, route=edge)))
    assert list(found) == ["template", "inputs", "graph", "dry run", "checkpoint", "scorer"]
    assert all(item.is_ok for item in found.values())
    assert "generate > repair > repair" in found["dry run"].detail


def only_failure(workflow, name, words):
    found = items(workflow)
    failed = [item for item in found.values() if not item.is_ok]
    assert [item.name for item in failed] == [name]
    assert words in failed[0].detail


def test_an_unknown_model_in_the_template():
    only = items(toy(n_models=3), catalog_for(toy(n_models=2)))
    assert not only["template"].is_ok
    assert "'m2'" in only["template"].detail


def test_a_label_that_reaches_the_graph():
    only_failure(toy(inputs=lambda request: dict(request.data)), "inputs", "the label 'label' reaches the graph")


def test_a_label_that_no_row_has():
    only_failure(toy(labels=("gold",)), "inputs", "no label 'gold': its row has question, label")


def test_a_stage_that_the_graph_lacks():
    models = ("m0", "m1")
    template = Template((Stage("generate", models), Loop((Stage("mend", models),), 2)))
    only_failure(toy(template=template), "graph", "'mend'")


def test_a_build_that_raises():
    def build(vine):
        raise FileNotFoundError("prompts.txt\nis not there")

    only_failure(toy(build=build), "graph", "build(vine) raised FileNotFoundError: prompts.txt")


def ask(state: State, model) -> dict:
    return {"answer": model.invoke("x").text}


def with_stages(generate=ask, repair=ask, **changes):
    def build(vine):
        from langgraph.graph import END, START, StateGraph

        graph = StateGraph(State)
        graph.add_node("generate", vine.stage("generate", generate))
        graph.add_node("repair", vine.stage("repair", repair))
        graph.add_edge(START, "generate")
        for name in ("generate", "repair"):
            graph.add_conditional_edges(name, vine.route(lambda state: False, again="repair", end=END), ["repair", END])
        return graph

    return toy(**({"build": build, "score": lambda request, state: False} | changes))


def test_a_stage_that_raises_is_named():
    def clumsy(state: State, model) -> dict:
        return {"answer": state["nothing"]}

    found = items(with_stages(repair=clumsy))["dry run"]  # behind a text that another stage's code may have misread
    assert found.is_doubtful
    assert "stage 'repair' as invocation 2, or a tool after it, failed" in found.detail
    only_failure(with_stages(generate=clumsy), "dry run", "stage 'generate' as invocation 1, or a tool after it, failed")


def test_a_state_that_cannot_be_checkpointed_is_named_by_key_and_type():
    def opaque(state: State, model) -> dict:
        return {"log": [object()]}

    only_failure(with_stages(generate=opaque), "checkpoint", "'log' (list) cannot be checkpointed")


def test_a_state_that_comes_back_as_something_else_is_named_by_key_and_type():
    def tuples(state: State, model) -> dict:
        return {"answer": "x", "log": ("a",)}

    only_failure(with_stages(generate=tuples), "checkpoint", "the key 'log' (tuple): comes back as list")


def test_tuples_inside_a_value_may_come_back_as_lists():
    """LangGraph's own checkpointers do the same."""

    def pairs(state: State, model) -> dict:
        return {"answer": "x", "log": [("a", {"b": ("c",)})]}

    assert items(with_stages(generate=pairs))["checkpoint"].is_ok


def test_a_scorer_that_returns_no_score():
    only_failure(with_stages(score=lambda request, state: "no"), "scorer", "score returned str, not a bool or a number")
    only_failure(with_stages(score=lambda request, state: 2), "scorer", "score returned 2, which is outside of [0, 1]")


def test_a_scorer_that_grades():
    report = check_workflow(with_stages(score=lambda request, state: 0.5), catalog_for(toy()))
    assert [item.detail for item in report.items if item.name == "scorer"] == [
        "returns a number in [0, 1]; the scripted answer scores 0.5"
    ]


def test_a_scorer_that_rejects_the_right_answer():
    class Writer:
        kinds = ("typo",)

        def skills(self, request):
            return {}

        def right(self, request, rng):
            return "right"

        def wrong(self, request, kind, rng):
            return "wrong"

    only_failure(replace(with_stages(), writer=Writer()), "scorer", "calls the writer's own right answer wrong")


def checked_app(node):
    """A graph of one stage that is a chat model, with tools behind it."""
    from langgraph.graph import START, StateGraph

    graph = StateGraph(AppState)
    graph.add_node("generate", node)
    graph.add_edge(START, "generate")
    template = Template((Stage("generate", ("m0", "m1")),))
    return items(toy(build=lambda vine: graph, template=template, score=lambda request, state: True))


class AppState(State, total=False):
    messages: list


class Verdict(BaseModel):
    grade: Literal["pass", "fail"]
    score: int = Field(ge=3, le=5)
    reasons: list[str] = Field(min_length=2)


@pytest.mark.parametrize(
    "options", [{}, {"method": "json_mode"}, {"method": "function_calling"}, {"method": "json_schema"}], ids=str
)
def test_an_app_of_structured_output_passes(options):
    """It failed: the scripted model wrote its fixed text whatever was asked."""
    judge = APP_VINE.chat_model("generate").with_structured_output(Verdict, **options)
    found = checked_app(lambda state: {"answer": judge.invoke(state["question"]).grade})
    assert all(item.is_ok for item in found.values())


@pytest.mark.parametrize("choice", ["any", "look_up", None])
def test_an_app_of_tools_passes(choice):
    @tool
    def look_up(key: str, most: Annotated[int, Field(ge=2)]) -> str:
        """Look something up."""
        assert most >= 2
        return key

    model = APP_VINE.chat_model("generate").bind_tools([look_up], tool_choice=choice)

    def node(state: AppState):
        [call] = model.invoke(state["question"]).tool_calls
        return {"answer": look_up.invoke(call).content}

    assert all(item.is_ok for item in checked_app(node).values())


@pytest.mark.parametrize(("error", "is_ok"), [(ValueError("unknown order"), True), (TypeError("a mistake"), False)])
def test_a_tool_that_refuses_invented_arguments_is_left_out_and_a_mistake_in_it_is_not(error, is_ok):
    @tool
    def look_up(key: str) -> str:
        """Look something up."""
        raise error

    model = APP_VINE.chat_model("generate").bind_tools([look_up])

    def node(state: AppState):
        said = model.invoke(state["question"])
        return {"answer": said.text or look_up.invoke(said.tool_calls[0]).content}

    found = checked_app(node)["dry run"]
    assert found.is_ok == is_ok
    assert ("the tool 'look_up' refused the script's arguments (ValueError: unknown order" in found.detail) == is_ok


def test_a_loop_that_scripted_answers_never_end_is_no_fault():
    """It failed with the advice to add an arm that the template has."""
    from langgraph.graph import START, StateGraph

    llm = APP_VINE.chat_model()

    def asking(state: AppState):
        return {"answer": llm.invoke(state["question"]).text}

    graph = StateGraph(AppState)
    graph.add_node("draft", asking)
    graph.add_node("final", asking)
    graph.add_edge(START, "draft")
    graph.add_conditional_edges("draft", lambda state: "draft", ["draft", "final"])
    template = Template((Loop((Stage("draft", ("m0", "m1")),), times=2, early_exit=True), Stage("final", ("m0", "m1"))))
    found = items(toy(build=lambda vine: graph, template=template, score=lambda request, state: True))
    assert "its answers never end the loop" in found["dry run"].detail


def test_the_model_of_today_is_asked_for_where_nothing_says_it():
    def asked(**default):
        stages = [Stage(name, ("m0", "m1"), **default) for name in ("generate", "repair")]
        workflow = toy(template=Template((stages[0], Loop((stages[1],), times=2))))
        return check_workflow(workflow, catalog_for(workflow)).questions

    assert [text.partition("?")[0] for text in asked()] == ["which model runs today at generate, repair"]
    assert asked(default="m0") == ()
    for today, name in (({"a": "m0", "c": "m0"}, '"m0"'), ({"a": "m0", "c": "m1"}, "NAME"), ({}, "NAME")):
        report = CheckReport("w", (), today=today, without_today=("b",))
        assert report.questions[0].endswith(f'Stage("b", default={name})')


def test_what_fails_names_file_line_and_message():
    """It said the type of the exception alone."""

    def node(state: AppState):
        APP_VINE.chat_model("generate").invoke(state["question"])
        raise KeyError("no such column")

    line = node.__code__.co_firstlineno + 2
    assert f"KeyError: 'no such column' (at tests/profiler/test_readiness.py:{line})" in checked_app(node)["dry run"].detail


@pytest.mark.parametrize(("name", "is_ok"), [("plan['title']", True), ("unheard_of", False)])
def test_a_text_that_the_application_reads_in_a_form_of_its_own_is_no_fault(name, is_ok):
    """It stopped `vinelm try` at every application that asks for JSON in its prompt alone."""

    def node(state: AppState):
        return {"answer": eval(name, {"plan": APP_VINE.chat_model("generate").invoke(state["question"]).text})}

    found = checked_app(node)["dry run"]
    assert (found.is_ok, found.is_doubtful) == (is_ok, is_ok)
    assert ("TypeError: string indices must be integers" in found.detail) == is_ok


FORM = """Plan. JSON only: {"title": <string>, "parts": ["part 1", ...], "pages": 3 or more, "is_long": true | false,
"by": {"name": string}} END"""


def test_an_answer_in_a_form_that_only_the_prompt_describes_is_tried():
    """What came after such a node was never tried, so that nobody knew which models run there today."""

    def node(state: AppState):
        plan = json.loads(APP_VINE.chat_model("generate").invoke([("system", FORM), ("user", state["question"])]).text)
        plan["by"].update(found=plan["parts"][0][0] + plan["title"])
        return {"answer": f"{plan['by']} {plan['pages'] + 1} {plan['is_long'] is True}"}

    found = checked_app(node)["dry run"]
    assert (found.is_ok, found.is_doubtful) == (True, False)


def test_an_answer_that_denies_is_tried_where_the_other_ends_the_request():
    from langgraph.graph import START, StateGraph

    class Doubt(BaseModel):
        is_unclear: bool

    llm = APP_VINE.chat_model()

    def ask(state: AppState):
        return {"checked": int(llm.with_structured_output(Doubt).invoke(state["question"]).is_unclear)}

    graph = StateGraph(AppState)
    graph.add_node("ask", ask)
    graph.add_node("solve", lambda state: {"answer": llm.invoke(state["question"]).text})
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", lambda state: END if state["checked"] else "solve", ["solve", END])
    template = Template((Stage("ask", ("m0", "m1")), Branch({"solve": (Stage("solve", ("m0", "m1")),), "end": END})))
    found = items(toy(build=lambda vine: graph, template=template, score=lambda request, state: True))
    assert "ask > solve, each from" in found["dry run"].detail


def test_a_fault_before_any_text_was_written_is_one():
    def node(state: AppState):
        row = {}[state["question"]]
        return {"answer": APP_VINE.chat_model("generate").invoke(row).text}

    assert not checked_app(node)["dry run"].is_ok


def test_what_the_scripted_answers_show_is_said():
    found = items(toy(signal=lambda state: state["answer"], answer=("answer",)))
    assert found["signals"].detail == "the signal says 0; 3 of 3 invocations left an answer (answer)"
    assert items(toy(signal="status"))["signals"].detail == "the signal says failed"


def fails(one, other):
    raise KeyError(one)


@pytest.mark.parametrize(
    ("changes", "name", "words"),
    [
        ({"answer": ("answer", "sql")}, "dry run", "request 'q0', invocation 1 ('generate'): answer: the state has no key"),
        ({"signal": lambda state: state["sql"]}, "dry run", "signal(state) raised KeyError"),
        ({"answer": ("answer",), "agree": fails}, "signals", "agree(a, b) raised KeyError: it must compare any two answers"),
    ],
)
def test_a_wrong_declaration_is_found_before_anything_is_spent(changes, name, words):
    only_failure(toy(**changes), name, words)


def reading(role, state, model):
    texts = (f"you are the {role} " * 100, state["facts"], state["question"])
    return {"answer": model.invoke([HumanMessage(text) for text in texts]).content}


def gathering(vine):
    """Two stages, each with a role of its own, read the facts that a node of their own has gathered."""
    graph = StateGraph(FactState)
    graph.add_node("gather", lambda state: {"facts": f"of {state['question']} " * 400})
    names = ("one", "two")
    for name in names:
        graph.add_node(name, vine.stage(name, partial(reading, name), state=FactState))
    for start, end in pairwise((START, "gather", *names, END)):
        graph.add_edge(start, end)
    return graph


class FactState(State, total=False):
    facts: str


def test_prompts_of_a_handful_of_requests_are_compared_and_their_messages_named():
    models = ("m0", "m1")
    template = Template((Stage("one", models), Stage("two", models)))
    workflow = toy(n_requests=7, build=gathering, template=template, score=lambda request, state: True)
    report = check_workflow(workflow, catalog_for(workflow), with_prompts=True)
    assert report.is_ok, report.items
    found = report.prompts
    assert (found.requests, [(stage.stage, stage.calls) for stage in found.stages]) == (5, [("one", 5), ("two", 5)])
    assert (found.move.moved, found.move.before) == ("facts", "human message 1")
    assert found.move.reusable > found.reusable + 0.05
    assert check_workflow(workflow, catalog_for(workflow)).prompts is None


@pytest.mark.parametrize("name", ["support", "examples.react.app:workflow"])
def test_prompts_of_branches_and_of_agents_are_compared(name):
    workflow = load_workflow(name)
    report = check_workflow(workflow, catalog_for_check(None, workflow.simulated_preset), with_prompts=True)
    assert report.is_ok, [item for item in report.items if not item.is_ok]
    assert all(stage.tokens.total > 0 for stage in report.prompts.stages)
    assert report.prompts.move is None


def test_a_dry_run_is_in_no_trace_of_the_application(monkeypatch):
    """An application that turns LangSmith on while it is imported had our scripted answers in its project."""
    traced = []

    def node(state: State, model):
        traced.append(tracing_is_enabled())
        return {"answer": model.invoke(state["question"]).text}

    monkeypatch.setenv("LANGSMITH_TRACING", "true")
    get_env_var.cache_clear()
    try:
        assert tracing_is_enabled()
        items(toy(build=one_stage(node), template=Template((Stage("generate", ("m0", "m1")),))))
    finally:
        monkeypatch.undo()
        get_env_var.cache_clear()
    assert traced
    assert not any(traced)
