"""How answers of models are read, how answers compare, and the bound of the notebook."""

import pytest

from vinelm.workflows.graphqa import prompts
from vinelm.workflows.graphqa.dataset import same_names
from vinelm.workflows.graphqa.prompts import LEFT_OUT, NOTEBOOK_CHARS, Reasoned, arm_of, code_of, names_in, noted, reasoned


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\nprint(1)\n```", "print(1)"),
        ("Sure.\n```py\nx = 1\n```\nor\n```\nprint(2)\n```", "print(2)"),
        ("```python\nprint(1)", "print(1)"),
        ("print(RetrieveNode('a'))", "print(RetrieveNode('a'))"),
        ("I would look at the nodes.", None),
        ("", None),
    ],
)
def test_code_is_found(text, code):
    assert code_of(text) == code


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Finish[#]", Reasoned("#", None, ())),
        ("So it is.\nFinish[Ada, Bob].", Reasoned("Ada, Bob", None, ())),
        ("Finish[]", Reasoned(None, None, ())),
        ("Missing: the b of a\nEdges: likes, `knows`, hates", Reasoned(None, "the b of a", ("knows", "likes"))),
        ("no idea", Reasoned(None, None, ())),
    ],
)
def test_what_is_missing_or_the_answer(text, said):
    assert reasoned(text, ("knows", "likes")) == said


def test_arms_are_read_as_they_are_written():
    assert [arm_of(text) for text in ("direct", "Direct.", "Arm: multi_hop", "hm")] == [
        "direct",
        "direct",
        "multi_hop",
        "multi_hop",
    ]


def test_answers_are_sets_of_names_or_numbers():
    assert names_in("Ada, Bob") == names_in("bob\nADA")
    assert names_in("8") == names_in("8.0") == names_in("['8']")
    assert same_names("a, b", "b, a")
    assert not same_names("a", "a, b")
    assert not same_names("", "")
    assert not same_names(None, None)


def test_the_notebook_only_grows_and_has_a_bound():
    notebook = []
    for number in range(60):
        before, notebook = notebook, noted(notebook, f"{number} " + "x" * 1000)
        assert notebook[: len(before)] == before
        assert sum(map(len, notebook)) <= NOTEBOOK_CHARS
    assert notebook[-1] == LEFT_OUT
    assert notebook[0].startswith("0 ")


def test_the_static_part_comes_first(monkeypatch):
    """Two questions share everything up to the question, so that a provider's cache can keep it."""
    assert prompts.act_prompt("a").startswith("Find: a")
    assert "Question" not in prompts.act_system("schema")
    assert prompts.reason_prompt("q", ["a", "b"]).index("1. a") < prompts.reason_prompt("q", ["a", "b"]).index("q")


def test_other_prompts_are_another_workflow(monkeypatch):
    before = prompts.digest()
    monkeypatch.setattr(prompts, "PLAN", "x")
    assert prompts.digest() != before


def test_numbers_are_one_answer_only_if_they_are_equal():
    assert prompts.names_in("8") == prompts.names_in("8.0")
    assert prompts.names_in("1234567") != prompts.names_in("1234568")
    assert prompts.names_in("12345.67") != prompts.names_in("12345.71")


def test_a_second_try_is_told_what_was_wrong_with_the_first():
    assert "write one" in prompts.act_prompt("a", None, "there was no snippet: write one ```python block")
    assert "print(1)" in prompts.act_prompt("a", "print(1)", "it failed")
    assert prompts.act_prompt("a") == "Find: a"
