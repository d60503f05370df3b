import gzip
import json

import pytest

from vinelm.errors import DatasetError
from vinelm.workflows.mathqa import mathqa
from vinelm.workflows.mathqa.dataset import load_problems
from vinelm.workflows.mathqa.prompts import read_solution


def write(path, *rows):
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def test_numbers_in_the_forms_of_published_sets(tmp_path):
    path = write(
        tmp_path / "a.jsonl.gz",
        {"question_id": "0", "question": "q", "answer": "18", "solution": "s"},
        {"question_id": "chal-1", "question": "q", "answer": "51.0", "type": "Subtraction"},
        {"question": "q", "answer": "9 * 2 = <<9*2=18>>18\n#### 1,800"},
        {"question": "q", "answer": 7},
        {"question": "q", "answer": r"\sqrt{2}"},
    )
    found = load_problems(path)
    assert [(r.id, r.data["answer"]) for r in found] == [
        ("0", "18"), ("chal-1", "51"), ("3", "1800"), ("4", "7"), ("5", r"\sqrt{2}"),
    ]  # fmt: skip
    workflow = mathqa(path)
    assert workflow.graph_input(found[0]) == {"question": "q"}
    assert workflow.score(found[1], {"answer": "51.00"})
    assert not workflow.score(found[1], {"answer": "52"})
    assert not workflow.score(found[1], {"answer": ""})
    assert not workflow.score(found[1], {})


def test_multiple_choice(tmp_path):
    row = {
        "exam": "sat", "question_id": "1", "context": "Read this.", "question": "Which?",
        "choices": {"A": " x", "B": "y"}, "answer": "B",
    }  # fmt: skip
    path = write(tmp_path / "a.jsonl", row, row | {"exam": "lsat"})
    first, second = load_problems(path)
    assert (first.id, second.id) == ("sat/1", "lsat/1")
    assert first.data["question"] == "Read this.\n\nWhich?\n\nA) x\nB) y"
    workflow = mathqa(path)
    assert workflow.graph_input(first).keys() == {"question", "choices"}
    assert workflow.score(first, {"answer": "B"})
    assert not workflow.score(first, {"answer": "b"})


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"question": "q"}, r"a\.jsonl:2: the key 'answer' is missing"),
        ({"question": " ", "answer": "1"}, r"a\.jsonl:2: 'question' must be a text"),
        ({"question": "q", "answer": None}, r"a\.jsonl:2: 'answer' must be a number or a text"),
        ({"question": "q", "answer": True}, r"a\.jsonl:2: 'answer' must be a number or a text"),
        ({"question": "q", "answer": "9" * 300}, r"a\.jsonl:2: 'answer' must have 1 to 200 characters"),
        ({"question": "q", "answer": "steps ####"}, r"a\.jsonl:2: 'answer' must have 1 to 200 characters"),
        ({"question": "q", "answer": "A", "choices": {"a": "x"}}, r"a\.jsonl:2: 'choices' must map capital letters or digits"),
        ({"question": "q", "answer": "A", "choices": ["x"]}, r"a\.jsonl:2: 'choices' must map capital letters"),
        ({"question": "q", "answer": "none", "choices": {"A": "x"}}, r"a\.jsonl:2: 'answer' is 'none': it must be one of A"),
        ({"question": "q", "answer": "1", "question_id": "first"}, r"a\.jsonl:2: the id 'first' repeats"),
    ],
)
def test_a_line_at_fault_is_named(tmp_path, row, complaint):
    with pytest.raises(DatasetError, match=complaint) as caught:
        load_problems(write(tmp_path / "a.jsonl", {"question": "q", "answer": "1", "question_id": "first"}, row))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "count", "topics"), [("gsm8k_test", 1319, {""}), ("svamp", 1000, None), ("exams", 700, None)])
def test_the_real_sets(real_data, name, count, topics):
    found = load_problems(real_data / "math" / f"{name}.jsonl.gz")
    assert len(found) == count
    for request in found:
        letters = request.data.get("choices", "")
        assert read_solution(f"Answer: {request.data['answer']}", letters).answer == request.data["answer"]
    assert topics is None or {request.data["topic"] for request in found} == topics
