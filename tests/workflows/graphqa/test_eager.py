"""Retrieval that starts while the program is written, exact in virtual time, through the whole workflow."""

import json
import random

import pytest

pytest.importorskip("pydantic_monty", reason="the extra graph is not installed")

from graphqa_parts import eager

from vinelm.tools.speculation import Speculation
from vinelm.workflows.graphqa import Node, graphqa

PROGRAM = "a = RetrieveNode('Ada')\nb = RetrieveNode('Bob')\nprint(len(set(NeighbourCheck(a, 'knows')) & set([b])))"
ROWS = [
    {"question": "Does Bob know Ada?", "answer": "1", "program": PROGRAM, "arm": "direct"},
    {"question": "Whom does Ada know?", "answer": "Bob, Cid", "arm": "multi_hop",
     "program": "print(', '.join(NodeFeature(NeighbourCheck(RetrieveNode('Ada'), 'knows'), 'name')))"},
]  # fmt: skip


@pytest.fixture(params=["", "town"])
def workflow(request, tmp_path):
    nodes = [Node("a", "person", "Ada"), Node("b", "person", "Bob"), Node("c", "person", "Cid")]
    source = eager.SlowSource(nodes, [("a", "knows", "b"), ("a", "knows", "c")])
    named = {"graph": request.param} if request.param else {}
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(json.dumps(row | named) for row in ROWS))
    return graphqa({request.param: source} if request.param else source, path)


def test_it_hides_what_there_is_to_hide_and_changes_no_answer(workflow):
    """Of one graph and of several: the name of the graph is an argument of the read."""
    bare, ahead = eager.runs(workflow, None, 0.25), eager.runs(workflow, Speculation(at_once=64), 0.25)
    assert [(answer, asked) for _, answer, asked in bare] == [("1", ["Ada", "Bob"]), ("Bob, Cid", ["Ada"])]
    assert [one[1:] for one in ahead] == [one[1:] for one in bare]
    assert bare[0][0] - ahead[0][0] == pytest.approx(0.5)  # both pass behind the rest of the program
    assert bare[1][0] - ahead[1][0] == pytest.approx(7 / eager.TOKENS_PER_S)  # as many tokens follow the call


def test_what_is_left_of_it_is_waited_for(workflow):
    """Both reads run at once, and the program hides what is left of it after the second."""
    (bare, _, _), (ahead, _, _) = (eager.runs(workflow, how, 10.0)[0] for how in (None, Speculation(at_once=64)))
    text = workflow.writer.at("act").right(workflow.requests[0], random.Random(0))
    left = (len(text) - text.index("')\nprint")) // eager.TOKEN_CHARS / eager.TOKENS_PER_S
    assert bare - ahead == pytest.approx(10.0 + left, abs=1 / eager.TOKENS_PER_S)
    best = eager.hidden_at_best(text, ["Ada", "Bob"], 10.0)
    assert bare - ahead <= best + 1e-9
    assert bare - ahead > 0.98 * best


def test_one_place_at_once_changes_no_answer(workflow):
    """The bound on the dollars and the number of guesses holds for reads from a text, too; answers stay."""
    assert eager.runs(workflow, Speculation(at_once=1), 10.0)[0][1:] == ("1", ["Ada", "Bob"])
