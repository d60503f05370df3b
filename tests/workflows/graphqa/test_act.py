"""Code actions: what syntax runs, what the sandbox alone keeps in, its limits, and whose fault a failure is."""

import os

import pytest

pytest.importorskip("pydantic_monty", reason="the extra graph is not installed")

from vinelm.errors import MissingExtra
from vinelm.workflows.graphqa import Node, act, act_process
from vinelm.workflows.graphqa.act import Ran, SandboxFailure, refusal, run_snippet
from vinelm.workflows.graphqa.source import GraphError, GraphSource

GRAPH = GraphSource(
    [Node("a", "k", "Ann"), Node("b", "k", "Bob"), Node("c", "k", "Cid")], [("a", "knows", "b"), ("a", "knows", "c")]
)
REFUSED = [
    "import os", "from os import path", "__import__('os')", "open('/etc/passwd')", "eval('1')", "exec('1')",
    "compile('1', '', 'exec')",
    "().__class__", "''.__class__.__mro__", "print.__self__", "RetrieveNode.__globals__", "x = [].__class__", "_x = 1",
    "def f(): pass", "async def f(): pass", "class A: pass", "try:\n    1/0\nexcept Exception:\n    pass",
    "del x", "global x",
    "with x: pass", "raise ValueError",
    "assert True", "yield 1", "(x := 1)", "match 1:\n    case _: pass", "print(undefined)",
    "getattr(1, 'real')",
    "setattr(1, 'a', 2)", "globals()", "locals()", "vars()", "dir()", "type(1)", "id(1)", "input()", "help()",
    "'{0.__class__}'.format(1)", "'a'.format_map({})", "object()", "super()", "memoryview(b'')", "breakpoint()", "lambda _x: 1",
    "await x", "print(f'{().__class__}')", "'a'.join.__self__", "[].__reduce__()", "type Alias = int", "exit()", "nonlocal x",
    "async for x in y: pass", "print((lambda: 1).__code__)", "x = 1\nx.__dict__", "delattr(1, 'a')", "iter([])", "bytes(10)",
]  # fmt: skip
"""Hostile or needless: none of them is executed at all."""
HELD = {  # by the sandbox alone, without the list of allowed syntax
    "open('/etc/passwd').read()": "PermissionError",
    "import os\nprint(os.environ)": "Error",
    "import os\nos.system('id')": "Error",
    "import subprocess": "Error",
    "import socket": "Error",
    "import ctypes": "Error",
    "import urllib.request": "Error",
    "import threading": "Error",
    "import multiprocessing": "Error",
    "import sys\nprint(sys.modules)": "AttributeError",
    "import os\nprint(os.listdir('/'))": "PermissionError",
    "import os\nos.remove('/tmp/x')": "PermissionError",
    "__import__('os').system('id')": "NameError",
    "eval(\"open('/etc/passwd').read()\")": "PermissionError",
    "eval('(' * 100000)": "SyntaxError",
    "[].__class__.__base__.__subclasses__()": "AttributeError",
    "f'{1:>1000000000}'": "MemoryError",
    "'%1000000000d' % 1": "MemoryError",
    "raise SystemExit": "SystemExit",
    "from pathlib import Path\nprint(list(Path('/').iterdir()))": "PermissionError",
    "from pathlib import Path\nPath('/tmp/x').write_text('x')": "PermissionError",
    "import time\ntime.sleep(100)": "TimeoutError: sleep limit",
    "RetrieveNode.__globals__": "AttributeError",
    "print.__self__": "AttributeError",
    "().__class__.__bases__[0].__subclasses__()": "AttributeError",
    "def f(): return f()\nf()": "RecursionError",
    "x = 'a' * 10**9": "MemoryError: the snippet took more than 50 MB",
    "x = [0]\nwhile True: x = x + x": "MemoryError: the snippet took more than 50 MB",
    "x = 9**9**9": "MemoryError",
    "x = list(range(10**9))": "MemoryError",
    "for i in range(20000): RetrieveNode('Ann')": "RuntimeError: more than 10,000 calls: give the functions lists of ids",
}


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
def test_the_sandbox_holds_by_itself(code, monkeypatch):
    monkeypatch.setattr(act, "refusal", lambda code: None)
    found = ran(code)
    assert found.status == "error"
    assert found.error.startswith(HELD[code]) or HELD[code] in found.error.split(":")[0]
    assert "\n" not in found.error
    assert ran("print(1)").printed == "1"  # the sandbox lives


def test_a_snippet_has_two_seconds(short):
    assert act_process._LIMITS["TimeoutError: feed time"].endswith("2 s")
    found = short("while True: pass")
    assert (found["status"], found["error"]) == ("error", "TimeoutError: the snippet ran longer than 2 s")
    assert short("1")["status"] == "ok"


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
