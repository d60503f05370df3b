"""What prompts have in common, and the one move of a message that pays."""

from dataclasses import asdict

import pytest

from vinelm.prompts.layout import Move, PromptPart, SeenPrompt, layout_of

SYSTEM = PromptPart("system message 1", "system\n" + "be brief " * 20, is_movable=False)


def part(name, text, *, is_movable=True):
    return PromptPart(name, f"human\n{text}", is_movable)


def prompts(*order, n_requests=4, reports=1500, role=500):
    """Two stages, each with a role of its own, that read the same reports of a request."""
    return [
        SeenPrompt(stage, f"r{n}", (SYSTEM, *(
            part("role", f"you are the {stage} " * (role // 4)) if name == "role" else
            part("reports", f"report {n} says " * (reports // 4)) if name == "reports" else
            part("question", f"what of {n}?")
            for name in order
        )))
        for n in range(n_requests)
        for stage in ("bull", "bear")
    ]  # fmt: skip


def test_a_move_that_pays_is_named_with_what_it_would_give():
    found = layout_of(prompts("role", "reports", "question"))
    assert found.reusable == 0
    assert found.move == Move("reports", "role", ("bull", "bear"), pytest.approx(0.37, abs=0.05))
    better = layout_of(prompts("reports", "role", "question"))
    assert better.move is None
    assert better.reusable == found.move.reusable
    assert [stage.tokens.shared for stage in better.stages] == [0, 0]  # each report is of one request


def test_short_prompts_have_nothing_to_gain():
    found = layout_of(prompts("role", "reports", "question", reports=200, role=100))
    assert (found.reusable, found.move) == (0, None)
    assert layout_of([]).stages == ()


def test_what_cannot_be_moved_stays():
    fixed = [
        SeenPrompt(one.stage, one.request, (one.parts[0], part("role", one.parts[1].text, is_movable=False), one.parts[2]))
        for one in prompts("role", "reports")
    ]
    assert layout_of(fixed).move is None


def test_a_static_part_that_a_provider_caches_is_told():
    stages = layout_of(prompts("role", "reports", role=3000)).stages
    assert [(stage.stage, stage.is_static_cached) for stage in stages] == [("bull", True), ("bear", True)]
    assert not any(stage.is_static_cached for stage in layout_of(prompts("role", "reports")).stages)


def test_no_text_of_a_prompt_is_told():
    told = repr(asdict(layout_of(prompts("role", "reports", "question"))))
    assert "what of" not in told
    assert "be brief" not in told
