import pytest

from vinelm.workflows.mathqa import prompts
from vinelm.workflows.mathqa.prompts import read_solution

LONG = "We add the two numbers and divide the sum by three, which is what the question asks for.\n"


@pytest.mark.parametrize(
    ("text", "answer", "calculation"),
    [
        ("Check: 2 * 3\nAnswer: 6", "6", "2 * 3"),
        ("**Answer:** 6", "6", ""),
        ("Answer: **6**", "6", ""),
        ("Answer: 5\nNo, wrong.\nCheck: 1+1\ncheck: 3 + 3\nFinal answer: $6$.", "6", "3 + 3"),
        (LONG + r"So it is \boxed{\frac{1}{2}}.", r"\frac{1}{2}", ""),
        (r"Answer: $\boxed{\frac{1}{2}}$", r"\frac{1}{2}", ""),
        (LONG + "#### 18", "18", ""),
        ("18", "18", ""),
        ("Answer: $12.50", "$12.50", ""),
        ("> Answer: 1,200 ", "1,200", ""),
        ("", "", ""),
        ("Answer:", "", ""),
        ("Answer: ?", "", ""),
        (LONG, "", ""),
        (LONG + r"\boxed{never closed", "", ""),
    ],
)
def test_what_is_read_from_a_text(text, answer, calculation):
    assert read_solution(text) == (answer, calculation)


@pytest.mark.parametrize(
    ("text", "letter"),
    [("B", "B"), ("Answer: (C)", "C"), ("Answer: C) 12 m", "C"), ("Answer: D.", "D"), ("[", ""), ("N", ""),
     ("Answer: Both", ""), ("E", "")],
)  # fmt: skip
def test_of_a_choice_only_its_letter_counts(text, letter):
    assert read_solution(text, "ABCD").answer == letter
    assert read_solution("Answer: 3) it melts", "1234").answer == "3"


def test_a_long_text_is_read_at_once():
    assert read_solution("\\boxed{" * 200_000).answer == ""
    assert read_solution("Answer: \n" * 100_000).answer == ""
    assert read_solution("#" * 300_000 + "\nAnswer: 7").answer == "7"


def test_other_prompts_are_another_workflow(monkeypatch):
    before = prompts.digest()
    monkeypatch.setattr(prompts, "SYSTEM", "Solve it.")
    assert prompts.digest() != before
