"""Code actions: what syntax runs, what the sandbox alone keeps in, its limits, and whose fault a failure is."""

import os
import time

import pytest
from graphqa_parts.hostile_snippets import HELD, REFUSED

pytest.importorskip("pydantic_monty", reason="the extra graph is not installed")

from vinelm.errors import MissingExtra
from vinelm.workflows.graphqa import Node, act, act_process
from vinelm.workflows.graphqa.act import Ran, SandboxFailure, in_sandbox, refusal, run_snippet
from vinelm.workflows.graphqa.source import GraphError, GraphSource

GRAPH = GraphSource(
    [Node("a", "k", "Ann"), Node("b", "k", "Bob"), Node("c", "k", "Cid")], [("a", "knows", "b"), ("a", "knows", "c")]
)


def ran(code, functions=None):
    return run_snippet(code, GRAPH.functions() if functions is None else functions)


@pytest.fixture
def short(monkeypatch):
    """Runs in this process, with a short time limit; its sandbox ends with the test's process."""
    monkeypatch.setattr(act_process, "MOST_SECONDS", 0.05)
    return lambda code: act_process.executed(code, [], None)


def test_a_snippet_asks_the_graph_and_prints():
    names = "print(', '.join(NodeFeature(NeighbourCheck(n, 'knows'), 'name')))"
    code = f"n = RetrieveNode('Ann')\nprint(NodeDegree(n, 'knows'))\n{names}"
    assert ran(code) == Ran(status="ok", printed="2\nBob, Cid")
    assert ran("print(NodeInfo(edge_ids)[:5]) if False else print(1)").status == "refused"
    listed = "print(sorted({x for x in NeighbourCheck({'a'}, edge_type='knows')}, key=lambda x: x, reverse=True))"
    assert ran(listed).printed == "['c', 'b']"


@pytest.mark.parametrize("code", REFUSED)
def test_what_is_not_on_the_list_is_not_executed(code, monkeypatch):
    monkeypatch.setattr(act, "SESSIONS", None)
    found = ran(code)
    assert found.status in ("refused", "error")
    assert found.printed == ""
    assert "\n" not in found.error


def test_syntax_and_size_are_looked_at_first():
    assert ran("x = (") == Ran(status="error", error="SyntaxError: '(' was never closed (line 1)")
    assert "more than 8000 characters" in refusal("x = 1\n" * 2000)
    assert refusal("(" * 3000 + ")" * 3000).startswith("SyntaxError")
    assert refusal("x = " + "-" * 7000 + "1") is None or refusal("x = " + "-" * 7000 + "1").startswith("SyntaxError")
    assert refusal("a\0b").startswith("SyntaxError")


@pytest.mark.parametrize("code", HELD)
def test_the_sandbox_holds_by_itself(code):
    found = in_sandbox(code, GRAPH.functions())
    assert found.status == "error"
    assert found.error.startswith(HELD[code]) or HELD[code] in found.error.split(":")[0]
    assert "\n" not in found.error
    assert ran("print(1)").printed == "1"  # the sandbox lives


def test_a_snippet_has_two_seconds(short):
    assert act_process._LIMITS["TimeoutError: feed time"].endswith("2 s")
    found = short("while True: pass")
    assert (found["status"], found["error"]) == ("error", "TimeoutError: the snippet ran longer than 2 s")
    assert short("1")["status"] == "ok"


def test_one_long_step_is_the_snippets_mistake_too(short):
    """The interpreter looks at its clock between steps; its pool kills the worker that stays in one."""
    power = "a = 7**1000000\nfor i in range(9):\n    a = a * a"
    assert short(power) == {
        "status": "error",
        "printed": "",
        "error": act_process._LIMITS["TimeoutError: feed time"],
        "is_cut": False,
    }
    assert short("1")["status"] == "ok"


def test_calls_end_with_their_time_and_their_size(monkeypatch):
    assert ran("NodeDegree(['x' * 1000] * 20000, 'knows')").error.startswith(
        "ValueError: NodeDegree: more than 16 MB of arguments"
    )
    assert ran("print(NodeDegree(['a'] * 20000, 'knows')[:2])").printed == "[2, 2]"
    monkeypatch.setattr(act, "CALLS_S", -1.0)
    assert ran("print(1)\nRetrieveNode('Ann')") == Ran(
        status="error", printed="1", error="ValueError: the calls took longer than -1 s: ask for less (line 2)"
    )


def test_a_snippet_that_gives_no_sign_is_ended_for_its_own_fault(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(act, "SILENT_S", 1.0)
        found = ran("NodeDegree([[[1] * 1000] * 1000] * 1000, 'knows')")
    assert found.status == "error"
    assert found.error == "TimeoutError: the snippet gave no sign for 1 s: make less at once"
    assert ran("print(1)").printed == "1"


def test_time_until_a_worker_is_there_is_not_the_snippets(monkeypatch):
    class GoneError(Exception):
        pass

    class Pool:
        def checkout(self, limits):
            time.sleep(0.1)
            raise GoneError

    monkeypatch.setattr(act_process.monty, "MontyCrashedError", GoneError)
    monkeypatch.setattr(act_process, "MOST_SECONDS", 0.05)
    monkeypatch.setattr(act_process, "_pool", Pool)
    assert act_process.executed("print(1)", [], None) == {"status": "died"}


def test_printed_text_is_cut_and_says_so():
    assert ran("print('é' * 2047)") == Ran(status="ok", printed="é" * 2047)
    found = ran("for i in range(3000): print('éé')")
    assert (found.status, found.is_cut) == ("ok", True)
    assert 4090 <= len(found.printed.encode()) <= 4096


def test_errors_of_the_graph_are_the_snippets():
    assert ran("NeighbourCheck('a', 'know')").error == "ValueError: no edge type 'know': the nearest are knows (line 1)"
    assert ran("print(1)\nNodeDegree('a')").error == "ValueError: NodeDegree: missing a required argument: 'edge_type' (line 2)"
    assert ran("print(3)\n1 / 0") == Ran(status="error", printed="3", error="ZeroDivisionError: division by zero (line 2)")


def test_what_is_no_fault_of_the_snippet_is_no_answer():
    def broken(text):
        raise OSError("secret-path")

    with pytest.raises(SandboxFailure, match="a function of the graph raised OSError") as caught:
        ran("print(RetrieveNode('x'))", {"RetrieveNode": broken})
    assert "secret" not in str(caught.value)
    assert ran("print(1)").printed == "1"


def test_a_dead_sandbox_is_a_failure_and_the_next_snippet_runs():
    def killed(text):
        act.SESSIONS._process.kill()
        for session in act.SESSIONS._idle:
            session.close()
        raise GraphError("gone")

    assert ran("RetrieveNode('x')", {"RetrieveNode": killed}).status == "error"
    assert ran("print(2)").printed == "2"


def test_forked_children_run_snippets_of_their_own():
    assert ran("print(1)").printed == "1"
    child = os.fork()
    if child == 0:
        os._exit(0 if ran("print(RetrieveNode('Bob'))").printed == "b" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert ran("print(3)").printed == "3"


def test_without_the_extra_it_says_so(monkeypatch):
    monkeypatch.setattr("vinelm.extras.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"running code actions needs pydantic_monty: pip install 'vinelm\[graph\]'"):
        ran("print(1)")
