"""The bundled problems: every answer computed a second time, by another way than the calculation's."""

import hashlib
import json
from collections import Counter
from fractions import Fraction
from functools import cache
from itertools import combinations, count, permutations, product
from types import SimpleNamespace

from vinelm.workflows.mathqa.arithmetic import number, value_of
from vinelm.workflows.mathqa.workflow import DATA

COUNT = 638
"""29 of each template."""


class Problem(SimpleNamespace):
    @property
    def answer(self):
        return number(self.answer_text)


@cache
def problems():
    rows = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
    return [Problem(answer_text=row.pop("answer"), **row) for row in rows]


def walk(rows, columns):
    """Ways over a grid, step by step."""
    ways = Counter({(0, 0): 1})
    for x, y in product(range(rows + 1), range(columns + 1)):
        if (x, y) != (0, 0):
            ways[x, y] = ways[x - 1, y] + ways[x, y - 1]
    return ways[rows, columns]


def arranged(n, *counts):
    """Arrangements, by choosing the places of one letter after the other."""
    left, ways = n, 1
    for k in counts:
        ways *= sum(1 for _ in combinations(range(left), k))
        left -= k
    return ways


def filled(a, b, leak):
    """Hours to fill a pool, from the parts that run in during a time that all rates divide."""
    hours = a * b * (leak or 1)
    pools = hours // a + hours // b - (hours // leak if leak else 0)
    return Fraction(hours, pools)


def power_remainder(base, exponent, modulus):
    value = 1
    for _ in range(exponent):
        value = value * base % modulus
    return value


AGAIN = {
    "packs_and_gifts": lambda packs, size, friends, each: sum([size] * packs) - sum([each] * friends),
    "bill_with_change": lambda n, a, m, b, note: Fraction(note * 100 - sum([a] * n + [b] * m), 100),
    "weekly_savings": lambda start, week, n, gift, spent: start + sum([week] * n) + gift - spent - spent,
    "growing_rows": lambda first, more, rows: sum(range(first, first + more * rows, more)),
    "two_parts_of_a_whole": lambda a, b, c, d: Fraction(b * d - a * d - c * b, b * d),
    "part_of_the_rest": lambda n, a, b, c, d: (n - Fraction(n * a, b)) - (n - Fraction(n * a, b)) * c / d,
    "scaled_recipe": lambda a, b, people, guests: Fraction(a * guests, b * people),
    "discount_then_tax": lambda p, off, tax: (p - Fraction(p * off, 100)) + (p - Fraction(p * off, 100)) * tax / 100,
    "price_before": lambda after, off: next(p for p in count(1) if p * (100 - off) == after * 100),
    "mixture": lambda a, p, b, q: Fraction(100) * (Fraction(a * p, 100) + Fraction(b * q, 100)) / (a + b),
    "there_and_back": lambda km, v, w: Fraction(2 * v * w, v + w),
    "working_together": filled,
    "catching_up": lambda slow, fast, late: fast * Fraction(slow * late, fast - slow),
    "heads_and_legs": lambda n, m, a, b: next(y for y in range(n + 1) if a * (n - y) + b * y == m),
    "two_baskets": lambda a, b, p, c, d, q: next(
        y for x, y in product(range(1, 40), repeat=2) if a * x + b * y == p and c * x + d * y == q
    ),
    "ages": lambda total, years, times: next(y for y in range(total) if total - y + years == times * (y + years)),
    "meeting_again": lambda a, b: next(t for t in count(1) if t % a == 0 and t % b == 0),
    "remainder_of_power": power_remainder,
    "multiples_of_either": lambda a, b, most: sum(1 for n in range(1, most + 1) if n % a == 0 or n % b == 0),
    "committee": lambda women, men, w, m: len([*product(combinations(range(women), w), combinations(range(men), m))]),
    "row_of_letters": arranged,
    "grid_walks": lambda a, b, c, d: walk(a, b) * walk(c, d),
}  # fmt: skip


def test_every_answer_is_right():
    assert {problem.kind for problem in problems()} == AGAIN.keys()
    for problem in problems():
        assert AGAIN[problem.kind](*problem.numbers) == problem.answer, problem.question
        assert value_of(problem.calculation) == number(problem.answer_text) == problem.answer


def test_small_words_are_counted_one_by_one():
    words = {p.question: p for p in problems() if p.kind == "row_of_letters" and p.numbers[0] <= 6}
    assert len(words) >= 5
    for question, problem in words.items():
        word = next(part.strip("?") for part in question.split() if part.strip("?").isupper() and len(part) > 2)
        assert len(set(permutations(word))) == problem.answer


def test_numbers_of_the_text_are_those_of_the_answer():
    for problem in problems():
        if problem.kind not in ("row_of_letters", "grid_walks", "bill_with_change", "catching_up", "working_together"):
            shown = problem.question.replace("^", " ").replace("/", " ").replace("%", " ").replace("$", " ")
            words = {word.strip(".,?()") for word in shown.split()}
            given = [n for n in problem.numbers if str(n) in words]
            assert len(given) >= len(problem.numbers) - 2, problem.question


def test_mistakes_are_wrong_and_differ():
    for problem in problems():
        values = [value_of(mistake) for mistake in problem.mistakes]
        assert len(values) >= 2
        assert None not in values
        assert len({*values, problem.answer}) == len(values) + 1


def test_they_are_many_different_and_of_every_topic_and_length():
    found = problems()
    assert len({problem.question for problem in found}) == len(found) == COUNT
    topics = Counter(problem.topic for problem in found)
    assert len(topics) == 7
    assert min(topics.values()) >= 80
    assert {problem.steps for problem in found} >= {2, 3, 4, 5, 6}
    assert len({problem.topic for problem in found[:22]}) == 7  # a fair sample from the start
    assert all(problem.answer > 0 or problem.kind == "remainder_of_power" for problem in found)


def test_they_never_change():
    text = "\n".join(f"{problem.question} {problem.answer_text}" for problem in problems())
    assert hashlib.sha256(text.encode()).hexdigest().startswith("392ba4504867f0bd")
