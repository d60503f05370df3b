"""Sixty runs at once on one shared context object: each has a policy of its own."""

import asyncio
import gc
import weakref
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Lock

import pytest
from adapters.kit import KINDS, MODES, App, EchoBackend, control, get, path_of, run, thread
from conftest import make_catalog, make_template, random_table
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, RetryPolicy, interrupt

from vinelm import VineLM
from vinelm.adapters.langgraph import GraphAdapter
from vinelm.adapters.langgraph.runs.run_finder import RunRegistry
from vinelm.backends.resolver import ModelResolver
from vinelm.controller import Planner
from vinelm.controller.testing import LoadMonitorContract
from vinelm.errors import CallError
from vinelm.objective import Objective
from vinelm.policies import DefaultPolicy

RUNS = 60


class Counting(GraphAdapter):
    """Every run's policy uses one model throughout: which one, tells the runs apart."""

    def __init__(self):
        models = ModelResolver(make_catalog(RUNS), {"test": EchoBackend()})
        super().__init__(models, template=make_template(RUNS, 3), new_policy=self.a_policy)
        self.policies = []
        self._count = Lock()

    def a_policy(self, context):
        with self._count:
            model = f"m{len(self.policies)}"
            policy = DefaultPolicy(lambda stage: model, clock=self.new_clock(), template=self.template)
            policy.context = context
            self.policies.append(policy)
        return policy


def check(vine, results, context):
    assert len(vine.policies) == RUNS
    assert sorted(result["a"] for result in results) == sorted(f"m{i};m{i};m{i};" for i in range(RUNS))
    assert {len(policy.invocations) for policy in vine.policies} == {3}
    assert {policy.clock.now() for policy in vine.policies} == {3.0}
    for policy in vine.policies:
        assert policy.context.objective is context.objective


@pytest.mark.parametrize("schema", KINDS.values(), ids=KINDS)
def test_sixty_tasks_share_a_context_and_nothing_else(schema):
    vine = Counting()
    context = vine.context(Objective(maximize="accuracy"))
    graph = App(schema, "async").build(vine).compile()

    async def all_at_once():
        return await asyncio.gather(*(graph.ainvoke({"q": str(i)}, context=context) for i in range(RUNS)))

    results = asyncio.run(all_at_once())
    check(vine, results, context)
    assert [result["q"] for result in results] == [str(i) for i in range(RUNS)]


def test_sixty_threads_share_a_context_and_nothing_else():
    vine = Counting()
    context = vine.context(Objective(maximize="accuracy"))
    graph = App().build(vine).compile()
    with ThreadPoolExecutor(RUNS) as pool:
        results = list(pool.map(lambda i: graph.invoke({"q": str(i)}, context=context), range(RUNS)))
    check(vine, results, context)


def test_sixty_tasks_each_in_a_with_block_of_its_own():
    vine = control()
    seen = []

    def note(context):
        seen.append(context.objective.max_cost_usd)

    vine = GraphAdapter(vine.models, template=vine.template, new_policy=note)
    graph = App(mode="async", turns=1, tool=lambda state: seen.append(get(state, "q"))).build(vine).compile()

    async def one(i):
        with vine.request(Objective(maximize="accuracy", max_cost_usd=float(i))):
            return await graph.ainvoke({"q": i})

    async def all_at_once():
        return await asyncio.gather(*(one(i) for i in range(RUNS)))

    asyncio.run(all_at_once())
    assert sorted(seen) == sorted([*range(RUNS)] * 2)


def test_the_map_of_runs_is_bounded_and_keeps_the_newest():
    made = []

    def new_policy(i):
        made.append(i)
        return DefaultPolicy(lambda stage: f"policy {i}")

    runs = RunRegistry(GraphAdapter(ModelResolver(make_catalog(1), {})), new_policy, bound=3)
    controls = [object() for _ in range(5)]

    def of(i):
        return runs.of(None, controls[i], i).policy.next_model("generate", ())

    for i in (0, 1, 2, 0, 3, 4):
        assert of(i) == f"policy {i}"
    assert len(runs) == 3
    assert (of(0), made) == ("policy 0", [0, 1, 2, 3, 4])  # used after 1 and 2
    assert (of(1), made[-1]) == ("policy 1", 1)


def test_a_control_is_held_as_long_as_its_run_so_that_its_id_is_not_given_again():
    runs = RunRegistry(GraphAdapter(ModelResolver(make_catalog(1), {})), lambda context: DefaultPolicy(str))
    ids = {id(runs.of(None, object(), None).control) for _ in range(100)}
    assert len(ids) == len(runs) == 100


class Mortal(GraphAdapter):
    """Remembers its policies without keeping them."""

    def __init__(self):
        models = ModelResolver(make_catalog(3), {"test": EchoBackend()})
        super().__init__(models, template=make_template(3, 3), new_policy=self.a_policy)
        self.policies = []

    def a_policy(self, context):
        policy = DefaultPolicy(self.default_model, clock=self.new_clock(), template=self.template)
        self.policies.append(weakref.ref(policy))
        return policy


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", ["ended", "failed", "interrupted"])
def test_a_run_that_is_over_holds_nothing(mode, how):
    def tool(state):
        if how == "failed":
            raise OSError("lost")
        if how == "interrupted":
            interrupt("go on?")

    vine = Mortal()
    graph = App(mode=mode, tool=tool).build(vine).compile(checkpointer=InMemorySaver())
    with nullcontext() if how != "failed" else pytest.raises(OSError, match="lost"):
        run(graph, mode, {"q": "?"}, thread(), context=vine.context())
    gc.collect()
    assert [policy() for policy in vine.policies] == [None]


def test_two_streams_read_in_turns_keep_their_policies():
    vine = Counting()
    graph = App().build(vine).compile()
    streams = [graph.stream({"q": str(i)}, context=vine.context(), stream_mode="values") for i in range(2)]
    values = list(zip(*streams, strict=True))
    assert len(vine.policies) == 2
    assert sorted(value["a"] for value in values[-1]) == ["m0;m0;m0;", "m1;m1;m1;"]


def test_where_langgraph_hides_its_channels_runs_are_found_by_their_control(monkeypatch):
    monkeypatch.setattr("vinelm.adapters.langgraph.runs.run_finder.channel_of", lambda config: None)
    vine = Counting()
    graph = App().build(vine).compile()
    assert [graph.invoke({"q": "?"})["a"] for _ in range(2)] == ["m0;m0;m0;", "m1;m1;m1;"]


class UnderWay:
    """A load monitor that only counts."""

    def __init__(self):
        self.by_engine, self.most = Counter(), 0
        self._lock = Lock()

    def delays(self):
        return {}

    def dispatched(self, engine):
        with self._lock:
            self.by_engine[engine] += 1
            self.most = max(self.most, self.by_engine[engine])

    def finished(self, engine, excess_s):
        with self._lock:
            self.by_engine[engine] -= 1


class TestUnderWay(LoadMonitorContract):
    def make(self):
        return UnderWay()


@pytest.mark.parametrize("mode", MODES)
def test_sixty_planned_requests_with_retries_and_interrupts_keep_apart_and_leave_no_call_under_way(mode):
    """Each fails once on an engine that is down, goes around it, waits for a person, and is resumed."""
    annotated = random_table(3, n_requests=60, n_models=3, depth=3).annotate()
    objective = Objective(maximize="accuracy", max_latency_s=1000.0)
    wanted = Planner(annotated).plan(objective, may_stop=False).next_model
    calls = UnderWay()
    backend = EchoBackend({wanted: CallError("down", kind="server")})
    vine = VineLM(annotated.catalog, {"test": backend}, trie=annotated, load=calls)
    retry = RetryPolicy(max_attempts=3, initial_interval=0.001, jitter=False, retry_on=CallError)
    app = App(mode=mode, retry=retry, turns=1, inside=lambda stage, state, model: interrupt("send it?"))
    graph, context = app.build(vine).compile(checkpointer=InMemorySaver()), vine.context(objective)

    async def one(i):
        await graph.ainvoke({"q": str(i)}, thread(str(i)), context=context)
        return await graph.ainvoke(Command(resume=True), thread(str(i)), context=context)

    async def all_at_once():
        return await asyncio.gather(*(one(i) for i in range(RUNS)))

    def one_after_the_other(i):
        graph.invoke({"q": str(i)}, thread(str(i)), context=context)
        return graph.invoke(Command(resume=True), thread(str(i)), context=context)

    if mode == "async":
        results = asyncio.run(all_at_once())
    else:
        with ThreadPoolExecutor(RUNS) as pool:
            results = list(pool.map(one_after_the_other, range(RUNS)))
    assert [get(result, "q") for result in results] == [str(i) for i in range(RUNS)]
    assert all(wanted not in result["a"] for result in results)
    assert {len(path_of(graph, thread(str(i)))) for i in range(RUNS)} == {1}
    assert calls.most > 0
    assert set(calls.by_engine.values()) == {0}
