"""The graph with models that answer by script, its questions, and what the simulated models write for it."""

import json
import random
from collections import Counter
from types import SimpleNamespace

import pytest
from langchain_core.messages import AIMessage

pytest.importorskip("pydantic_monty", reason="the extra graph is not installed")

from vinelm.errors import ConfigError, DatasetError
from vinelm.requests.workflow import StagedWriter
from vinelm.trie import Trie
from vinelm.workflows import load_workflow
from vinelm.workflows.graphqa import GraphSource, Node, graphqa
from vinelm.workflows.graphqa.act import run_snippet
from vinelm.workflows.graphqa.graph import signal
from vinelm.workflows.graphqa.prompts import code_of
from vinelm.workflows.graphqa.questions import drawn
from vinelm.workflows.graphqa.workflow import template

GRAPH = GraphSource(
    [*(Node(f"p{n}", "person", name) for n, name in enumerate(("Ada", "Bob", "Cid", "Dan"))),
     Node("t1", "town", "Ulm"), Node("t2", "town", "Bern")],
    [("p0", "knows", "p1"), ("p0", "knows", "p2"), ("p1", "lives", "t1"), ("p2", "lives", "t2"), ("p3", "lives", "t1")],
)  # fmt: skip
TOWNS = "print(', '.join(NodeFeature(NeighbourCheck(NeighbourCheck(RetrieveNode('Ada'), 'knows'), 'lives'), 'name')))"
ROWS = [
    {"question": "How many know Ada?", "answer": "2", "program": "print(NodeDegree(RetrieveNode('Ada'), 'knows'))",
     "arm": "direct", "entities": ["Ada"]},
    {"question": "Where do friends of Ada live?", "answer": "Bern, Ulm",
     "program": TOWNS, "entities": {"a": "Ada"},
     "any_of": False},
]  # fmt: skip


class ScriptedVine:
    """Gives each stage a model that answers what ``answers`` says, and keeps the prompts and the calls of tools."""

    finish = staticmethod(lambda state: {})

    def __init__(self, answers):
        self.answers, self.prompts, self.tools = {stage: list(texts) for stage, texts in answers.items()}, [], []

    def stage(self, name, fn, **settings):
        return lambda state: fn(state, SimpleNamespace(invoke=lambda messages: self._answer(name, messages)))

    def _answer(self, name, messages):
        self.prompts.append((name, "\n".join(message.content for message in messages)))
        return AIMessage(self.answers[name].pop(0))

    def route(self, fn, *, again, end):
        return lambda state: end if fn(state) or not self.answers[again] else again

    def tool(self, fn, *, read_only):
        assert read_only

        def invoke(arguments):
            self.tools.append(arguments)
            return fn(**arguments)

        return SimpleNamespace(invoke=invoke)


@pytest.fixture
def workflow(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)))
    return graphqa(GRAPH, path)


@pytest.fixture(scope="module")
def bundled():
    return load_workflow("graphqa")


def answered(workflow, number, **answers):
    vine = ScriptedVine({"act_direct": [], "act": []} | answers)
    request = workflow.requests[number]
    return workflow.build(vine).compile().invoke(workflow.graph_input(request)), vine


def test_a_direct_question_takes_one_action(workflow):
    state, vine = answered(workflow, 0, classify=["direct"], act_direct=[f"```python\n{ROWS[0]['program']}\n```"])
    assert [stage for stage, _ in vine.prompts] == ["classify", "act_direct"]
    assert vine.tools == [{"text": "Ada"}]
    assert (state["answer"], signal(state)) == ("2", "finished")
    assert workflow.score(workflow.requests[0], state)
    assert workflow.labels == ("answer", "program", "entities", "arm", "any_of")


def test_its_error_is_shown_once_more(workflow):
    bad = "```python\nprint(NodeDegree(RetrieveNode('Ada'), 'know'))\n```"
    state, vine = answered(workflow, 0, classify=["direct"], act_direct=[bad, f"```python\n{ROWS[0]['program']}\n```"])
    assert [stage for stage, _ in vine.prompts] == ["classify", "act_direct", "act_direct"]
    assert "ValueError: no edge type 'know': the nearest are knows, lives" in vine.prompts[2][1]
    assert state["answer"] == "2"
    state, _ = answered(workflow, 0, classify=["direct"], act_direct=[bad, bad])
    assert (signal(state), workflow.score(workflow.requests[0], state)) == ("code error", False)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("I do not know", "form"), ("```python\nimport os\n```", "refused"),
     ("```python\nx = 1\n```", "empty"), ("```\nx = (\n```", "code error")],
)  # fmt: skip
def test_what_an_action_comes_to_is_the_signal(workflow, text, shown):
    state, _ = answered(workflow, 0, classify=["direct"], act_direct=[text])
    assert signal(state) == shown
    assert not state.get("answer")


PLAN = "Missing: towns of friends of Ada\nEdges: knows, lives"
ACT = f"```python\n{TOWNS}\n```"


def test_an_answer_does_not_outlast_the_turn_that_gave_it(workflow):
    """A plan may go on after an answer: what the next turn shows then counts."""
    vine = ScriptedVine({"classify": ["direct"], "act_direct": [f"```python\n{ROWS[0]['program']}\n```", "hm"]})
    vine.route = lambda fn, *, again, end: lambda state: again if vine.answers["act_direct"] else end
    state = workflow.build(vine).compile().invoke({"question": "How many know Ada?"})
    assert (signal(state), state["answer"]) == ("form", None)


def test_a_name_that_is_no_text_is_the_snippets_mistake(workflow):
    state, vine = answered(workflow, 0, classify=["direct"], act_direct=["```\nprint(RetrieveNode(5))\n```"])
    assert (signal(state), vine.tools) == ("code error", [])
    assert "5 is no name" in state["error"]


def test_a_longer_question_is_planned_looked_up_and_reasoned(workflow):
    state, vine = answered(workflow, 1, classify=["multi_hop"], plan=[PLAN], act=[ACT], reason=["Finish[#]"])
    assert [stage for stage, _ in vine.prompts] == ["classify", "plan", "act", "reason"]
    assert "Where do friends" not in vine.prompts[2][1]  # only what is missing is passed on
    assert "1. towns of friends of Ada -> Ulm, Bern" in vine.prompts[3][1] or "Bern, Ulm" in vine.prompts[3][1]
    assert (workflow.score(workflow.requests[1], state), signal(state)) == (True, "finished")


def test_the_action_knows_the_edges_of_the_plan_only(workflow):
    lost = "Missing: towns\nEdges: knows"
    state, vine = answered(
        workflow, 1, classify=["multi_hop"], plan=[lost], act=[ACT, ACT], reason=[f"{PLAN}\nFinish[#]", "Finish[#]"]
    )
    assert "lives" not in vine.prompts[2][1]
    assert "failed: ValueError: the edge type lives is not among those of the plan: knows" in vine.prompts[3][1]
    assert "lives: person - town" in vine.prompts[4][1]  # the last entry was no answer, so that the rest counted
    assert len(state["notebook"]) == 2
    assert workflow.score(workflow.requests[1], state)


def test_an_answer_may_be_given_in_words_and_unreadable_text_is_seen(workflow):
    state, _ = answered(workflow, 1, classify=["multi_hop"], plan=["hm"], act=[ACT, ACT], reason=["hm", "Finish[Ulm, Bern]"])
    assert workflow.score(workflow.requests[1], state)
    state, _ = answered(workflow, 1, classify=["multi_hop"], plan=[PLAN], act=[ACT], reason=["hm"])
    assert (signal(state), state.get("answer")) == ("form", None)


def test_any_of_the_best_is_right(workflow):
    request = workflow.requests[1]
    some = SimpleNamespace(data={**request.data, "any_of": True})
    assert [workflow.score(some, {"answer": text}) for text in ("Ulm", "Bern, Ulm", "Ulm, Rome", "")] == [
        True,
        True,
        False,
        False,
    ]
    assert not workflow.score(request, {"answer": "Ulm"})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"question": " "}, ":2: 'question' must be a text that is not empty"),
        ({"answer": 2}, ":2: 'answer' must be a text"),
        ({"graph": "x"}, ":2: the graph 'x' does not exist: use one of ''"),
        ({"arm": "x"}, ":2: the arm 'x' does not exist: use direct or multi_hop"),
        ({"entities": ["Adda"]}, ":2: no node is called 'Adda': the nearest names are 'Ada', "),
        ({"program": "import os"}, ":2: the program must not run: Import is not allowed"),
        ({"program": "print(NodeDegree(RetrieveNode('Ada'), 'live'))"},
         ":2: the program: no edge type 'live': the nearest are lives"),
        ({"program": "print(RetrieveNode('qqqq'))"}, ":2: the program: no node is called 'qqqq'"),
    ],
)  # fmt: skip
def test_a_bad_row_is_named_with_its_line(tmp_path, change, said):
    path = tmp_path / "q.jsonl"
    path.write_text("\n" + json.dumps(ROWS[0] | change))
    with pytest.raises(DatasetError) as caught:
        graphqa(GRAPH, path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("source", ["shop.db", {}, {"a": "shop.db"}, None])
def test_what_is_no_graph_is_refused(tmp_path, source):
    with pytest.raises(ConfigError, match=r"^source is no graph: give GraphSource.from_sqlite\(PATH\)"):
        graphqa(source, tmp_path / "q.jsonl")


def test_its_trie_merges_the_histories_of_the_longer_arm(bundled):
    trie = Trie.from_template(template().bind(tuple("abcd")))
    assert trie.n_nodes == 1444
    assert list(trie.arms(trie.node(["a"], ["classify"]))) == ["act_direct", "plan"]
    assert bundled.template == template()


# -- simulated models --------------------------------------------------------------------------------------------


def ran(workflow, request, text):
    from vinelm.workflows.graphqa.workflow import demo_graphs

    code = code_of(text)
    return None if code is None else run_snippet(code, demo_graphs()[request.data["graph"]].functions())


def test_the_bundled_programs_print_the_labelled_answers(bundled):
    from vinelm.workflows.graphqa.workflow import demo_graphs

    assert drawn(demo_graphs()) == bundled.requests
    assert Counter(request.data["arm"] for request in bundled.requests) == {"direct": 80, "multi_hop": 111}
    for request in bundled.requests:
        assert bundled.score(
            request, {"answer": ran(bundled, request, bundled.writer.right(request, random.Random(0))).printed}
        )


@pytest.mark.parametrize("number", [0, 7, 11, 18, 24])
def test_right_answers_of_every_stage_score_right(bundled, number):
    request, writer, rng = bundled.requests[number], bundled.writer, random.Random(0)
    assert isinstance(writer, StagedWriter)
    answers = {stage: [writer.at(stage).right(request, rng)] for stage in ("classify", "act_direct", "plan", "act", "reason")}
    state, _ = answered(bundled, number, **answers)
    assert state["arm"] == request.data["arm"]
    assert bundled.score(request, state)


def test_a_mutation_is_executed_and_rarely_right(bundled):
    came = Counter()
    for request in bundled.requests[:60]:
        for kind in bundled.writer.kinds:
            found = ran(bundled, request, bundled.writer.wrong(request, kind, random.Random(1)))
            right = found is not None and bundled.score(request, {"answer": found.printed})
            came[
                kind,
                "form" if found is None else "right" if right else found.status if found.printed or found.error else "empty",
            ] += 1
    assert came["format", "form"] == came["syntax", "error"] == came["early", "ok"] == 60
    assert sum(count for (_, what), count in came.items() if what == "right") < 0.05 * came.total()
    assert came["wrong_edge", "empty"] > 0 < came["lost_hop", "ok"]


def test_wrong_plans_and_reasons_are_seen_in_what_is_executed(bundled):
    number = next(n for n, request in enumerate(bundled.requests) if request.data["arm"] == "multi_hop")
    request, writer, rng = bundled.requests[number], bundled.writer, random.Random(3)
    right = {stage: [writer.at(stage).right(request, rng)] for stage in ("classify", "plan", "act", "reason")}
    for stage, kind, shown in (("plan", "lost_hop", None), ("reason", "early", "finished"), ("reason", "format", "form")):
        answers = right | {stage: [writer.at(stage).wrong(request, kind, rng)]}
        state, _ = answered(bundled, number, **answers)
        assert not bundled.score(request, state), (stage, kind)
        assert signal(state) == shown
