"""Problems of everyday life: counting, fractions, percentages."""

from __future__ import annotations

from fractions import Fraction
from math import lcm

from vinelm.workflows.mathqa.bundled.problem import PEOPLE, PLACES, THINGS, MathProblem, ProblemTemplate
from vinelm.workflows.nl2sql.bundled.seeded_random import Dice


def packs_and_gifts(dice: Dice) -> MathProblem:
    """Several packs, some given away, the rest shared."""
    packs, size, friends, each = dice.between(4, 9), dice.between(6, 24), dice.between(2, 6), dice.between(1, 3)
    left = packs * size - friends * each
    who, things = dice.pick(PEOPLE), dice.pick(THINGS)
    question = dice.pick(
        (
            f"{who} buys {packs} boxes with {size} {things} in each and gives {each} of them to each of {friends} friends. "
            f"How many {things} are left?",
            f"There are {size} {things} in a box. {who} opens {packs} boxes, and {friends} neighbours take {each} {things} "
            f"apiece. How many remain?",
        )
    )
    return MathProblem(
        kind="packs_and_gifts", topic="arithmetic", question=question, numbers=(packs, size, friends, each),
        answer=Fraction(left), calculation=f"{packs} * {size} - {friends} * {each}",
        mistakes=(f"{packs} * {size} - {each}", f"{packs} * {size} - {friends}", f"{packs} + {size} - {friends} * {each}"),
        steps=3,
    )  # fmt: skip


def bill_with_change(dice: Dice) -> MathProblem:
    """A purchase of two kinds of things, paid with a note."""
    n, a, m, b = dice.between(2, 7), dice.between(5, 30) * 5, dice.between(2, 6), dice.between(8, 40) * 5
    total = Fraction(n * a + m * b, 100)
    note = next(bill for bill in (20, 50, 100) if bill > total)
    who, (one, other) = dice.pick(PEOPLE), dice.sample(THINGS, 2)
    price, second = f"${a / 100:.2f}", f"${b / 100:.2f}"
    question = dice.pick(
        (
            f"{who} takes {n} {one} at {price} each and {m} {other} at {second} each, and pays with a ${note} note. How many "
            f"dollars does {who} get back?",
            f"At the market {one} cost {price} apiece and {other} {second} apiece. {who} wants {n} {one} and {m} {other} and "
            f"has ${note}. How many dollars will be left?",
        )
    )
    return MathProblem(
        kind="bill_with_change", topic="arithmetic", question=question, numbers=(n, a, m, b, note), answer=note - total,
        calculation=f"{note} - ({n} * {a / 100:.2f} + {m} * {b / 100:.2f})",
        mistakes=(f"{n} * {a / 100:.2f} + {m} * {b / 100:.2f}", f"{note} - {a / 100:.2f} - {b / 100:.2f}",
                  f"{note} - {n} * {a / 100:.2f} + {m} * {b / 100:.2f}"),
        steps=4, is_decimal=True,
    )  # fmt: skip


def weekly_savings(dice: Dice) -> MathProblem:
    """Money saved over weeks with a gift and a purchase on the way."""
    start, week, n, spent, gift = (
        dice.between(30, 90), dice.between(4, 25), dice.between(5, 16), dice.between(6, 30), dice.between(5, 50),
    )  # fmt: skip
    who = dice.pick(PEOPLE)
    question = (
        f"{who} has {start} dollars and puts {week} dollars aside every week. After {n} weeks {who} has also received {gift} "
        f"dollars from an aunt and spent {spent} dollars on a present, twice. How many dollars does {who} have then?"
    )
    return MathProblem(
        kind="weekly_savings", topic="arithmetic", question=question, numbers=(start, week, n, gift, spent),
        answer=Fraction(start + week * n + gift - 2 * spent), calculation=f"{start} + {week} * {n} + {gift} - 2 * {spent}",
        mistakes=(f"{start} + {week} * {n} + {gift} - {spent}", f"{week} * {n} + {gift} - 2 * {spent}",
                  f"({start} + {week}) * {n} + {gift} - 2 * {spent}"),
        steps=5,
    )  # fmt: skip


def growing_rows(dice: Dice) -> MathProblem:
    """Rows of seats, each longer than the one before."""
    first, more, rows = dice.between(8, 20), dice.between(2, 5), dice.between(6, 18)
    question = dice.pick(
        (
            f"The first row of a theatre has {first} seats, and every row has {more} seats more than the row before. How many "
            f"seats are in the first {rows} rows together?",
            f"On the first day a gardener plants {first} bulbs, and on each later day {more} more than on the day before. How "
            f"many bulbs are in the ground after {rows} days?",
        )
    )
    return MathProblem(
        kind="growing_rows", topic="arithmetic", question=question, numbers=(first, more, rows),
        answer=Fraction(sum(first + more * i for i in range(rows))),
        calculation=f"{rows} * (2 * {first} + ({rows} - 1) * {more}) / 2",
        mistakes=(f"{rows} * (2 * {first} + {rows} * {more}) / 2", f"{first} + ({rows} - 1) * {more}",
                  f"{rows} * ({first} + {more})"),
        steps=5,
    )  # fmt: skip


def two_parts_of_a_whole(dice: Dice) -> MathProblem:
    """Two fractions of a journey; which fraction is left."""
    (a, b), (c, d) = _proper(dice), _proper(dice)
    while Fraction(a, b) + Fraction(c, d) >= 1 or b == d:
        (a, b), (c, d) = _proper(dice), _proper(dice)
    who, place = dice.pick(PEOPLE), dice.pick(PLACES)
    question = dice.pick(
        (
            f"On the way to {place}, {who} walks {a}/{b} of the distance before lunch and {c}/{d} of it in the afternoon. What "
            "fraction of the way is left for the evening?",
            f"{who} paints {a}/{b} of a fence at {place} on Friday and {c}/{d} of the fence on Saturday. Which fraction of the "
            "fence is still bare?",
        )
    )
    return MathProblem(
        kind="two_parts_of_a_whole", topic="fractions", question=question, numbers=(a, b, c, d),
        answer=1 - Fraction(a, b) - Fraction(c, d), calculation=f"1 - {a}/{b} - {c}/{d}",
        mistakes=(f"{a}/{b} + {c}/{d}", f"1 - ({a} + {c})/({b} + {d})", f"1 - {a}/{b} - (1 - {a}/{b}) * {c}/{d}"), steps=3,
    )  # fmt: skip


def part_of_the_rest(dice: Dice) -> MathProblem:
    """A part is used, then a part of what is left."""
    (a, b), (c, d) = _proper(dice), _proper(dice)
    litres = lcm(b, d) * b * d // dice.pick((1, b, d))
    tank = dice.pick(("A water tank", "An oil drum", "A barrel of juice"))
    question = (
        f"{tank} holds {litres} litres and is full. First {a}/{b} of it is drawn off, then {c}/{d} of what remained. How many "
        "litres are in it now?"
    )
    return MathProblem(
        kind="part_of_the_rest", topic="fractions", question=question, numbers=(litres, a, b, c, d),
        answer=litres * (1 - Fraction(a, b)) * (1 - Fraction(c, d)), calculation=f"{litres} * (1 - {a}/{b}) * (1 - {c}/{d})",
        mistakes=(f"{litres} * (1 - {a}/{b} - {c}/{d})", f"{litres} * (1 - {a}/{b}) * {c}/{d}",
                  f"{litres} * {a}/{b} * {c}/{d}"),
        steps=4,
    )  # fmt: skip


def scaled_recipe(dice: Dice) -> MathProblem:
    """A recipe for another number of people."""
    a, b = dice.between(1, 7), dice.pick((2, 3, 4, 8))
    people, guests = dice.between(2, 6), dice.between(7, 15)
    what = dice.pick(("flour", "rice", "sugar", "oats", "stock"))
    question = (
        f"A recipe for {people} people asks for {a}/{b} cups of {what}. How many cups of {what} does it take for {guests} "
        "people? Give a fraction in lowest terms or a whole number."
    )
    return MathProblem(
        kind="scaled_recipe", topic="fractions", question=question, numbers=(a, b, people, guests),
        answer=Fraction(a, b) * guests / people, calculation=f"{a}/{b} / {people} * {guests}",
        mistakes=(f"{a}/{b} * {guests}", f"{a}/{b} * {people} / {guests}", f"{a}/{b} * ({guests} - {people})"), steps=3,
    )  # fmt: skip


def discount_then_tax(dice: Dice) -> MathProblem:
    """A reduced price with tax on it."""
    price, off, tax = dice.between(2, 40) * 20, dice.pick((10, 15, 20, 25, 30, 40)), dice.pick((5, 10, 20))
    item = dice.pick(("bicycle", "heater", "telescope", "sofa", "drill", "tent"))
    question = (
        f"A {item} is marked at ${price}. The shop takes {off}% off, and then {tax}% sales tax is added to the reduced price. "
        "How many dollars does the buyer pay?"
    )
    return MathProblem(
        kind="discount_then_tax", topic="percentages", question=question, numbers=(price, off, tax),
        answer=Fraction(price * (100 - off) * (100 + tax), 10_000),
        calculation=f"{price} * (1 - {off}/100) * (1 + {tax}/100)",
        mistakes=(f"{price} * (1 - ({off} - {tax})/100)", f"{price} * (1 - {off}/100)",
                  f"{price} * {off}/100 * (1 + {tax}/100)"),
        steps=4, is_decimal=True,
    )  # fmt: skip


def price_before(dice: Dice) -> MathProblem:
    """The price before a reduction."""
    before, off = dice.between(3, 60) * 20, dice.pick((5, 10, 15, 20, 25, 30, 35, 40, 60))
    after = Fraction(before * (100 - off), 100)
    shown = str(after)
    question = dice.pick(
        (
            f"After a reduction of {off}% a coat costs {shown} dollars. How many dollars did it cost before?",
            f"A village lost {off}% of its people in ten years, and {shown} live there now. How many lived there before?",
        )
    )
    return MathProblem(
        kind="price_before", topic="percentages", question=question, numbers=(int(after), off), answer=Fraction(before),
        calculation=f"{shown} / (1 - {off}/100)",
        mistakes=(f"{shown} * (1 + {off}/100)", f"{shown} / (1 + {off}/100)", f"{shown} * (1 - {off}/100)"), steps=3,
    )  # fmt: skip


def mixture(dice: Dice) -> MathProblem:
    """Two solutions poured together: how strong is the mixture, in percent."""
    a, p, b, q = dice.between(1, 9), dice.between(1, 12) * 5, dice.between(1, 9), dice.between(1, 12) * 5
    while p == q or a == b:
        a, p, b, q = dice.between(1, 9), dice.between(1, 12) * 5, dice.between(1, 9), dice.between(1, 12) * 5
    salt = dice.pick(("salt", "sugar", "acid", "alcohol"))
    question = (
        f"{a} litres of a solution with {p}% {salt} are poured into {b} litres of one with {q}% {salt}. What percentage of the "
        f"mixture is {salt}? Give the number of percent, as a fraction in lowest terms if it is not whole."
    )
    return MathProblem(
        kind="mixture", topic="percentages", question=question, numbers=(a, p, b, q),
        answer=Fraction(a * p + b * q, a + b), calculation=f"({a} * {p} + {b} * {q}) / ({a} + {b})",
        mistakes=(f"({p} + {q}) / 2", f"({a} * {q} + {b} * {p}) / ({a} + {b})", f"{p} + {q}"), steps=4,
    )  # fmt: skip


def _proper(dice: Dice) -> tuple[int, int]:
    """Numerator and denominator of a proper fraction in lowest terms."""
    while True:
        below = dice.between(3, 9)
        above = dice.between(1, below - 1)
        if Fraction(above, below).denominator == below:
            return above, below


TEMPLATES: tuple[ProblemTemplate, ...] = (
    packs_and_gifts, bill_with_change, weekly_savings, growing_rows, two_parts_of_a_whole, part_of_the_rest, scaled_recipe,
    discount_then_tax, price_before, mixture,
)  # fmt: skip
"""All templates of this file."""
