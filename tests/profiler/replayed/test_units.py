"""Replayed units: each application is run from its start, and buys one invocation."""

import asyncio
import datetime
import random
import time
from itertools import product

import pytest
from kit.toys.profiling import ToyBackend, answer_of, catalog_for, cost_of, expected, toy
from kit.toys.replayed import (
    build_coroutine,
    build_entrypoint,
    build_function,
    build_gathered,
    experts_toy,
    function_toy,
    nested_toy,
    supervisor_toy,
    twice_toy,
)
from kit.waiting import wait_for
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.func import entrypoint, task
from pydantic import Field

from vinelm.backends import create_backends
from vinelm.catalog import Catalog
from vinelm.profiler.execution.replayed.runner import ReplayRunner, make_units
from vinelm.profiler.execution.unit import UnitRunner
from vinelm.template import Loop, Stage, Template


def runner(workflow, **backend):
    units = make_units(workflow, catalog_for(workflow), {"test": ToyBackend(**backend)})
    assert isinstance(units, ReplayRunner)
    return units


def walk(units, request):
    """Every cell that a request reaches, with its outcome; parents first."""
    parents, found = {(): None}, {}
    for depth in range(1, units.template.depth + 1):
        for prefix in product(("m0", "m1"), repeat=depth):
            if prefix[:-1] not in parents:
                continue
            found[prefix] = outcome = units.run(request, prefix, parents[prefix[:-1]])
            if outcome.observation.failure is None and not outcome.observation.stopped:
                parents[prefix] = outcome.checkpoint
    return found


def test_a_graph_gives_the_rows_of_its_checkpoints():
    replayed, forked = toy(replay=True, n_requests=3), toy(n_requests=3)
    units = runner(replayed)
    others = UnitRunner(forked, catalog_for(forked), {"test": ToyBackend()})
    for request in replayed.requests:
        for prefix, outcome in walk(units, request).items():
            wanted = expected(request.id, prefix)
            assert {key: getattr(outcome.observation, key) for key in wanted} == wanted
        assert walk(units, request).keys() == walk(others, request).keys()


@pytest.mark.parametrize("build", [build_function, build_coroutine, build_entrypoint])
def test_code_without_a_graph(build):
    workflow = function_toy(build, n_requests=4)
    units, n_rows = runner(workflow), 0
    for request in workflow.requests:
        for prefix, outcome in walk(units, request).items():
            wanted, row = expected(request.id, prefix), outcome.observation
            n_rows += 1
            if not wanted["stopped"] and len(prefix) < 3:  # the function has not returned: no answer can be seen
                wanted["success"] = None
            wanted["stopped"] = wanted["stopped"] or len(prefix) == 3
            del wanted["latency_s"]  # of a stream
            assert {key: getattr(row, key) for key in wanted} == wanted
    calls = units.backends["test"].calls
    assert len(calls) == len(set(calls)) == n_rows  # each was bought once


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (twice_toy, ("think", "judge")),
        (nested_toy, ("plan", "draft", "edit", "sign")),
        (supervisor_toy, ("boss", "research", "boss", "maths", "boss")),
    ],
)
def test_a_path_of_calls_that_no_checkpoint_separates(make, names):
    workflow = make(n_requests=2)
    units = runner(workflow)
    for request in workflow.requests:
        found = walk(units, request)
        assert len(found) == sum(2**depth for depth in range(1, len(names) + 1))
        for prefix, outcome in found.items():
            row = outcome.observation
            is_last = len(prefix) == len(names)
            assert (row.stage, row.failure, row.calls, row.stopped) == (names[len(prefix) - 1], None, 1, is_last)
            assert row.cost_usd == cost_of(request.id, prefix)
            if is_last:
                assert row.success == (answer_of(request.id, prefix) in ("right", "odd"))
    calls = units.backends["test"].calls
    assert len(calls) == len(set(calls))


def test_the_record_is_the_same_in_every_runner_and_scores_again_without_a_call():
    workflow = supervisor_toy(n_requests=1)
    one, other = runner(workflow), runner(workflow)
    [request] = workflow.requests
    first, second = walk(one, request), walk(other, request)
    assert {prefix: outcome.checkpoint for prefix, outcome in first.items()} == {
        prefix: outcome.checkpoint for prefix, outcome in second.items()
    }
    assert all(outcome.checkpoint[:1] == b"r" for outcome in first.values())
    calls = list(one.backends["test"].calls)
    from vinelm.profiler.execution.job import UnitBudget

    for prefix, outcome in first.items():
        again = one.score(request, prefix, outcome.checkpoint, UnitBudget(0.0, lambda _: False))
        assert again.observation.success == outcome.observation.success
    assert one.backends["test"].calls == calls


class Slow(ToyBackend):
    """The law expert takes ten seconds, the others three."""

    def answer(self, model, call, prompt_chars):
        from dataclasses import replace

        text, usage = super().answer(model, call, prompt_chars)
        return text, replace(usage, latency_s=10.0 if call.stage == "law" else 3.0)


@pytest.mark.parametrize("is_async", [False, True])
def test_stages_of_one_superstep(is_async):
    from functools import partial

    from kit.toys.replayed import build_experts

    workflow = experts_toy(n_requests=1, build=partial(build_experts, is_async=is_async))
    units = make_units(workflow, catalog_for(workflow), {"test": Slow()})
    [request] = workflow.requests
    found = walk(units, request)
    rows = [found[("m0", "m1", "m0", "m1")[:length]].observation for length in range(1, 5)]
    assert [row.stage for row in rows] == ["tax", "law", "art", "judge"]
    assert [row.latency_s for row in rows] == [3.0, 7.0, 0.0, 3.0]  # the longest so far counts once
    assert [row.stopped for row in rows] == [False, False, False, True]
    assert [row.cost_usd for row in rows] == [cost_of("q0", row.prefix) for row in rows]
    calls = units.backends["test"].calls
    assert len(calls) == len(set(calls)) == len(found) == 30


def test_a_function_may_gather_its_stages():
    workflow = experts_toy(n_requests=1, build=build_gathered)
    units = make_units(workflow, catalog_for(workflow), {"test": Slow()})
    found = walk(units, workflow.requests[0])
    assert {outcome.observation.failure for outcome in found.values()} == {None}
    assert len(units.backends["test"].calls) == len(found) == 30


class Late(BaseChatModel):
    """Answers after a while, as a model over the network does."""

    @property
    def _llm_type(self):
        return "late"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        return ChatResult(generations=[ChatGeneration(message=AIMessage("fine"))])

    async def _agenerate(self, messages, stop=None, run_manager=None, **kwargs):
        await asyncio.sleep(0.05)
        return self._generate(messages)


class Meeting(BaseChatModel):
    """Answers calls about a document once all of them have come, as slow models do; ``begun`` counts them."""

    n: int
    begun: list[str] = Field(default_factory=list)

    @property
    def _llm_type(self):
        return "meeting"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        if messages[-1].text.startswith("document"):
            self.begun.append(messages[-1].text)
            wait_for(lambda: len(self.begun) >= self.n)
        return ChatResult(generations=[ChatGeneration(message=AIMessage("fine"))])


def drafted(build, model):
    """The failures of the rows of an application whose calls are all of one stage."""
    price = {"input": 1.0, "output": 2.0, "source": "a test", "as_of": "2026-01-01"}
    catalog = Catalog.from_chat_models({"m0": model}, prices={"m0": price})
    template = Template((Loop((Stage("draft", ("m0",)),), times=4),))
    workflow = toy(n_requests=1, build=build, template=template, score=lambda request, state: True)
    units, parent, rows = make_units(workflow, catalog, create_backends(catalog)), None, []
    while parent is not None or not rows:
        outcome = units.run(workflow.requests[0], ("m0",) * (len(rows) + 1), parent)
        parent = None if outcome.observation.stopped else outcome.checkpoint
        rows.append(outcome.observation)
    return [row.failure for row in rows]


def drafts_and_checks(build):
    """The stage and the failure of each row of an application that drafts and checks with late models."""
    price = {"input": 1.0, "output": 2.0, "source": "a test", "as_of": "2026-01-01"}
    catalog = Catalog.from_chat_models({"m0": Late(), "m1": Late()}, prices={"m0": price, "m1": price})
    template = Template((Stage("draft", ("m0", "m1")), Stage("check", ("m0", "m1"))))
    workflow = toy(n_requests=1, build=build, template=template, score=lambda request, state: True)
    found = walk(make_units(workflow, catalog, create_backends(catalog)), workflow.requests[0])
    return [(outcome.observation.stage, outcome.observation.failure) for outcome in found.values()]


def test_a_call_beside_the_one_at_which_a_unit_ends_is_not_cancelled():
    """A task group cancels its other tasks when one fails: the paid call was a failed row, and the stage broken."""

    def build(vine):
        draft, check = vine.chat_model("draft"), vine.chat_model("check")

        async def solve(inputs):
            async with asyncio.TaskGroup() as group:
                first = group.create_task(draft.ainvoke(inputs["question"]))
                group.create_task(check.ainvoke(inputs["question"]))
            return {"answer": first.result().text}

        return solve

    assert drafts_and_checks(build) == [*[("draft", None)] * 2, *[("check", None)] * 4]


def gathering(may_begin):
    """An application that asks about three documents side by side, each once ``may_begin(number, ended numbers)``."""

    def build(vine):
        draft = vine.chat_model("draft")

        async def solve(inputs):
            ended = set()

            async def read(number):
                while not may_begin(number, ended):
                    await asyncio.sleep(0)
                try:
                    return (await draft.ainvoke(f"document {number}")).text
                finally:
                    ended.add(number)

            found = await asyncio.gather(*map(read, range(3)), return_exceptions=True)
            return {"answer": (await draft.ainvoke(" ".join(map(str, found)))).text}

        return solve

    return build


def test_a_call_that_begins_late_in_a_replay_is_beside_the_one_that_it_was_beside():
    """A recorded answer comes at once, so that the first call has ended before the others, which read a page first, begin."""
    model = Meeting(n=3)
    build = gathering(lambda number, ended: number == 0 or 0 in ended or len(model.begun) in (1, 2))
    assert drafted(build, model) == [None] * 2
    assert len(model.begun) == 3, "else they were not beside each other"


def test_a_call_that_begins_early_in_a_replay_is_after_the_one_that_it_came_after():
    """A first call is slow to begin: imports, connections. What was recorded one after the other comes side by side then."""
    runs = []

    def may_begin(number, ended):
        runs.extend([ended] if not any(ended is one for one in runs) else [])
        return ended is not runs[0] or number == 0 or number - 1 in ended

    assert drafted(gathering(may_begin), Meeting(n=1)) == [None] * 3


def test_tasks_of_an_entrypoint_that_came_side_by_side_may_come_one_after_the_other_in_a_replay():
    model = Meeting(n=2)

    def build(vine):
        draft = vine.chat_model("draft")
        ended = set()

        @task
        def ask(number):
            if number:
                wait_for(lambda: ended or len(model.begun) == 1)
            text = draft.invoke(f"document {number}").text
            ended.add(number)
            return text

        @entrypoint()
        def solve(inputs):
            ended.clear()
            found = [ask(number) for number in range(2)]
            return {"answer": draft.invoke(" ".join(one.result() for one in found)).text}

        return solve

    assert drafted(build, model) == [None] * 2
    assert len(model.begun) == 2


@pytest.mark.parametrize("is_async", [False, True])
def test_nodes_side_by_side_in_a_function_call_in_the_graph_s_order(is_async):
    """A run and its replay must agree on which call is the first, however long each node takes."""
    from langgraph.graph import START, StateGraph

    def build(vine):
        def node(stage, delay_s):
            model = vine.chat_model(stage)

            def run(state):
                time.sleep(delay_s)
                model.invoke(state["question"])

            async def arun(state):
                await asyncio.sleep(delay_s)
                await model.ainvoke(state["question"])

            return arun if is_async else run

        graph = StateGraph(dict)
        for name, stage, delay_s in (("1", "draft", 0.05), ("2", "check", 0.0)):  # LangGraph begins them in this order
            graph.add_node(name, node(stage, delay_s))
            graph.add_edge(START, name)
        app = graph.compile()

        def solve(inputs):
            app.invoke(inputs)
            return {"answer": "done"}

        async def asolve(inputs):
            await app.ainvoke(inputs)
            return {"answer": "done"}

        return asolve if is_async else solve

    assert drafts_and_checks(build) == [*[("draft", None)] * 2, *[("check", None)] * 4]


def test_an_application_that_waits_for_a_task_that_the_end_of_a_unit_killed_is_ended():
    """The steps of a LlamaIndex workflow are tasks, whose results the application waits for: a check ran forever."""

    def build(vine):
        draft, check = vine.chat_model("draft"), vine.chat_model("check")

        async def solve(inputs):
            events = asyncio.Queue()

            async def steps():
                said = await draft.ainvoke(inputs["question"])
                await events.put((await check.ainvoke(said.text)).text)

            task = asyncio.create_task(steps())
            return {"answer": await events.get(), "is_done": task.done()}

        return solve

    assert drafts_and_checks(build) == [*[("draft", None)] * 2, *[("check", None)] * 4]


@pytest.mark.parametrize(
    ("said", "is_same"),
    [
        (lambda: f"{datetime.datetime.now():%H:%M:%S.%f}", True),
        (lambda: f"{datetime.datetime.now():the %f day}", False),
        (lambda: f"FLT-{random.randint(100, 999)}-{random.random()}", True),
    ],
    ids=["the time", "other digits of the time", "a draw"],
)
def test_a_prompt_with_the_time_or_a_draw_is_the_recorded_one(said, is_same):
    """Many system prompts have the time in them, and states numbers that are drawn: no run was the recorded one."""

    def build(vine):
        draft, check = vine.chat_model("draft"), vine.chat_model("check")

        def solve(inputs):
            first = draft.invoke(f"{said()}: {inputs['question']}").text
            return {"answer": check.invoke(first).text}

        return solve

    template = Template((Stage("draft", ("m0", "m1")), Stage("check", ("m0", "m1"))))
    workflow = toy(n_requests=1, build=build, template=template, score=lambda request, state: True)
    before = random.getstate()
    found = walk(runner(workflow), workflow.requests[0])
    assert {outcome.observation.failure for outcome in found.values()} == ({None} if is_same else {None, "state"})
    assert random.getstate() == before
