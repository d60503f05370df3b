"""Interrupts inside stages and tools, resumed here and in another process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from kit.apps.echo import KINDS, MODES, App, control, forced, path_of, run, thread
from kit.apps.savers import dump, load
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

PATH = ["m2", "m0", "m1"]


def ask_in(stage):
    def inside(name, state, model):
        if name == stage:
            interrupt("may I?")

    return inside


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("schema", KINDS.values(), ids=KINDS)
def test_a_stage_that_asks_a_human_leaves_one_entry(schema, mode):
    vine = control()
    graph = App(schema, mode, inside=ask_in("generate"), turns=2).build(vine).compile(checkpointer=InMemorySaver())
    first = forced(vine, PATH)
    waiting = run(graph, mode, {"q": "?"}, thread(), context=vine.context(policy=first))
    assert waiting["__interrupt__"][0].value == "may I?"
    assert path_of(graph, thread()) == []
    assert first.invocations == []  # an interrupt is neither an end nor a failure
    second = forced(vine, PATH)
    result = run(graph, mode, Command(resume="yes"), thread(), context=vine.context(policy=second))
    assert result["a"] == "m2;m0;"
    assert path_of(graph, thread()) == ["m2", "m0"]
    assert [i.prefix for i in second.invocations] == [("m2",), ("m2", "m0")]


@pytest.mark.parametrize("mode", MODES)
def test_a_tool_that_asks_a_human_keeps_the_path(mode):
    vine = control()
    app = App(mode=mode, tool=lambda state: interrupt("run it?"), turns=2)
    graph = app.build(vine).compile(checkpointer=InMemorySaver())
    policies = [forced(vine, PATH) for _ in range(3)]
    run(graph, mode, {"q": "?"}, thread(), context=vine.context(policy=policies[0]))
    assert path_of(graph, thread()) == ["m2"]
    run(graph, mode, Command(resume=1), thread(), context=vine.context(policy=policies[1]))
    assert path_of(graph, thread()) == ["m2", "m0"]
    result = run(graph, mode, Command(resume=1), thread(), context=vine.context(policy=policies[2]))
    assert result["a"] == "m2;m0;"
    assert [[i.prefix for i in p.invocations] for p in policies] == [[("m2",)], [("m2", "m0")], []]
    assert [p.verdicts for p in policies] == [{}, {1: False}, {2: True}]


@pytest.mark.parametrize("mode", MODES)
def test_without_its_context_a_resumed_run_goes_on_with_the_defaults(mode):
    vine = control()
    graph = App(mode=mode, tool=lambda state: interrupt("run it?"), turns=2).build(vine).compile(checkpointer=InMemorySaver())
    run(graph, mode, {"q": "?"}, thread(), context=vine.context(policy=forced(vine, PATH)))
    run(graph, mode, Command(resume=1), thread())
    assert path_of(graph, thread()) == ["m2", "m0"]


CHILD = """
import json, sys
from kit.apps.savers import load
from kit.apps.echo import *
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
for line in sys.stdin:
    job = json.loads(line)
    vine, saver = control(), InMemorySaver()
    graph = App(KINDS[job["schema"]], job["mode"]).build(vine).compile(checkpointer=saver)
    load(saver, job["saved"], "elsewhere")
    policy = forced(vine, ["m2", "m0", "m1"])
    context = vine.context(policy=policy)
    result = run(graph, job["mode"], None, thread("elsewhere"), context=context)
    print(json.dumps([result["a"], path_of(graph, thread("elsewhere")), [i.prefix for i in policy.invocations]]))
"""


def test_another_process_goes_on_where_this_one_stopped():
    jobs = []
    for name, schema in KINDS.items():
        for mode in MODES:
            vine, saver = control(), InMemorySaver()
            graph = App(schema, mode).build(vine).compile(checkpointer=saver)
            stop = {"interrupt_before": ["repair"], "durability": "exit"}
            run(graph, mode, {"q": "?"}, thread(), context=vine.context(policy=forced(vine, PATH)), **stop)
            jobs.append({"schema": name, "mode": mode, "saved": dump(saver, thread())})
    tests = str(Path(__file__).parents[2])
    child = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import sys; sys.path.insert(0, {tests!r})\n{CHILD}"],
        input="\n".join(map(json.dumps, jobs)),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert child.returncode == 0, child.stderr
    answers = [json.loads(line) for line in child.stdout.splitlines()]
    assert answers == [["m2;m0;m1;", PATH, [PATH[:2], PATH]]] * len(jobs)


def test_a_saved_thread_can_be_loaded_under_another_name():
    vine, saver = control(), InMemorySaver()
    graph = App().build(vine).compile(checkpointer=saver)
    graph.invoke({"q": "?"}, thread(), context=vine.context(policy=forced(vine, PATH)))
    load(saver, dump(saver, thread()), "u")
    assert graph.get_state(thread("u")).values == graph.get_state(thread()).values
