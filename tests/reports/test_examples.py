from vinelm.reports.document import ExampleAnswer
from vinelm.reports.examples import MOST, examples


def answer(models, is_right):
    return ExampleAnswer(models=models, is_right=is_right, usd="$1.00")


def made(**kinds):
    """Requests: won, lost and tied ones go to another model, same ones to the same."""
    shapes = {"won": ("b", False, True), "lost": ("b", True, False), "tied": ("b", True, True), "same": ("a", True, True)}
    return [
        (f"{kind}-{i}", answer("a", before), answer(model, after))
        for kind, count in kinds.items()
        for model, before, after in [shapes[kind]]
        for i in range(count)
    ]


def shown(known):
    return examples(known, before="today", after="VineLM", note="n.")


def test_those_that_only_one_gets_right_come_first_and_all_are_counted():
    found = shown(made(won=3, lost=2, tied=20, same=20))
    kinds = [one.request.partition("-")[0] for one in found.shown]
    assert len(kinds) == MOST
    assert sorted(kinds[:5]) == ["lost", "lost", "won", "won", "won"]
    assert set(kinds[5:]) == {"tied"}
    assert found.note.startswith("Of 45 requests that both have answered, VineLM is right and today wrong on 3, ")
    assert "the other way round on 2." in found.note


def test_which_are_shown_does_not_hang_on_their_order():
    known = made(won=30, lost=30)
    assert shown(known).shown == shown(known[::-1]).shown
    kinds = {one.request.partition("-")[0] for one in shown(known).shown}
    assert kinds == {"won", "lost"}, "a draw, no choice of one side"


def test_without_a_difference_there_is_nothing_to_show():
    assert shown(made(same=20)) is None
    assert shown([]) is None
