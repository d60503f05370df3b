"""Problems that need an idea: rates, two unknowns, number theory, combinatorics."""

from __future__ import annotations

from fractions import Fraction
from math import comb, factorial, gcd, lcm

from vinelm.workflows.mathqa.bundled.problem import PEOPLE, PLACES, MathProblem, ProblemTemplate
from vinelm.workflows.nl2sql.bundled.seeded_random import Dice


def there_and_back(dice: Dice) -> MathProblem:
    """The mean speed of a journey there and back."""
    v, w, hours = dice.between(3, 9) * 5, dice.between(3, 12) * 5, dice.between(1, 4)
    while v == w:
        w = dice.between(3, 12) * 5
    km = lcm(v, w) * hours // gcd(lcm(v, w), 5)
    who, place = dice.pick(PEOPLE), dice.pick(PLACES)
    question = (
        f"{who} rides {km} km to {place} at {v} km/h and returns the same way at {w} km/h. What is the average speed of the "
        "whole ride in km/h? Give a fraction in lowest terms if it is not whole."
    )
    return MathProblem(
        kind="there_and_back", topic="rates", question=question, numbers=(km, v, w),
        answer=2 * km / (Fraction(km, v) + Fraction(km, w)), calculation=f"2 * {km} / ({km}/{v} + {km}/{w})",
        mistakes=(f"({v} + {w}) / 2", f"{km} / ({km}/{v} + {km}/{w})", f"2 * {km} / ({v} + {w})"), steps=5,
    )  # fmt: skip


def working_together(dice: Dice) -> MathProblem:
    """Two pumps, and a leak or none."""
    a, b = dice.between(3, 12), dice.between(3, 12)
    while a == b:
        b = dice.between(3, 12)
    if dice.chance(0.5):
        leak = dice.between(13, 30)
        question = (
            f"One pump fills a pool in {a} hours, another in {b} hours, and a leak empties the full pool in {leak} hours. How "
            "many hours do both pumps take to fill the leaking pool? Give a fraction in lowest terms if it is not whole."
        )
        rate, calculation = Fraction(1, a) + Fraction(1, b) - Fraction(1, leak), f"1 / (1/{a} + 1/{b} - 1/{leak})"
        mistakes = (f"1 / (1/{a} + 1/{b})", f"1 / (1/{a} + 1/{b} + 1/{leak})", f"({a} + {b}) / 2")
        return MathProblem(
            kind="working_together", topic="rates", question=question, numbers=(a, b, leak), answer=1 / rate,
            calculation=calculation, mistakes=mistakes, steps=5,
        )  # fmt: skip
    one, other = dice.sample(PEOPLE, 2)
    question = (
        f"{one} can sort the mail in {a} hours and {other} in {b} hours. How many hours do they take together? Give a fraction "
        "in lowest terms if it is not whole."
    )
    return MathProblem(
        kind="working_together", topic="rates", question=question, numbers=(a, b, 0), answer=Fraction(a * b, a + b),
        calculation=f"1 / (1/{a} + 1/{b})", mistakes=(f"({a} + {b}) / 2", f"{a} + {b}", f"1/{a} + 1/{b}"), steps=3,
    )  # fmt: skip


def catching_up(dice: Dice) -> MathProblem:
    """One starts later and is faster."""
    slow, faster, late = dice.between(3, 15), dice.between(2, 9), dice.between(1, 6)
    one, other = dice.sample(PEOPLE, 2)
    question = (
        f"{one} sets out at {slow} km/h. {late} {'hour' if late == 1 else 'hours'} later {other} follows on the same road at "
        f"{slow + faster} km/h. How many km from the start does {other} catch up with {one}? Give a fraction in lowest terms "
        "if it is not whole."
    )
    fast = slow + faster
    return MathProblem(
        kind="catching_up", topic="rates", question=question, numbers=(slow, fast, late),
        answer=Fraction(slow * late * fast, faster), calculation=f"{slow} * {late} / ({fast} - {slow}) * {fast}",
        mistakes=(f"{slow} * {late} / ({fast} - {slow})", f"{slow} * {late}", f"{fast} * {late}"), steps=4,
    )  # fmt: skip


def heads_and_legs(dice: Dice) -> MathProblem:
    """Two kinds of things, counted in two ways: how many are of the second kind."""
    x, y = dice.between(4, 40), dice.between(4, 40)
    while x == y:
        y = dice.between(4, 40)
    a, b, text = dice.pick(
        (
            (2, 4, "A farmer counts {n} heads and {m} legs among the hens and the goats in a yard. How many goats are there?"),
            (2, 3, "In a workshop stand {n} bicycles and tricycles with {m} wheels in total. How many are tricycles?"),
            (4, 7, "A cinema sold {n} tickets for {m} dollars: 4 dollars for a child, 7 for an adult. How many adults came?"),
            (5, 20, "A jar holds {n} coins of 5 and 20 cents, worth {m} cents together. How many of them are 20-cent coins?"),
        )
    )
    n, m = x + y, a * x + b * y
    return MathProblem(
        kind="heads_and_legs", topic="systems", question=text.format(n=n, m=m), numbers=(n, m, a, b), answer=Fraction(y),
        calculation=f"({m} - {a} * {n}) / ({b} - {a})",
        mistakes=(f"{n} - ({m} - {a} * {n}) / ({b} - {a})", f"({m} - {n}) / {b}", f"{m} / {b}"), steps=4,
    )  # fmt: skip


def two_baskets(dice: Dice) -> MathProblem:
    """Two linear equations in two prices; what one of the second kind costs."""
    x, y = dice.between(2, 20), dice.between(2, 20)
    a, b, c, d = (dice.between(1, 7) for _ in range(4))
    while a * d == b * c:
        a, b, c, d = (dice.between(1, 7) for _ in range(4))
    one, other = dice.sample(("lamp", "cushion", "basket", "rug", "clock", "vase", "mirror", "stool"), 2)
    question = (
        f"{a} {one}{'s' * (a > 1)} and {b} {other}{'s' * (b > 1)} cost {a * x + b * y} dollars; {c} {one}{'s' * (c > 1)} and "
        f"{d} {other}{'s' * (d > 1)} cost {c * x + d * y} dollars. How many dollars does one {other} cost?"
    )
    p, q = a * x + b * y, c * x + d * y
    return MathProblem(
        kind="two_baskets", topic="systems", question=question, numbers=(a, b, p, c, d, q), answer=Fraction(y),
        calculation=f"({a} * {q} - {c} * {p}) / ({a} * {d} - {b} * {c})",
        mistakes=(f"({p} * {d} - {b} * {q}) / ({a} * {d} - {b} * {c})", f"({p} + {q}) / ({a} + {b} + {c} + {d})",
                  f"({a} * {q} - {c} * {p}) / ({a} * {d} + {b} * {c})"),
        steps=6,
    )  # fmt: skip


def ages(dice: Dice) -> MathProblem:
    """Two ages, now and in some years."""
    times, gap, years = dice.between(2, 4), dice.between(2, 9), dice.between(2, 12)
    young = gap * dice.between(1, 4)
    old = times * (young + years) - years
    one, other = dice.sample(PEOPLE, 2)
    question = (
        f"{one} and {other} are {young + old} years old together. In {years} years {one} will be {times} times as old as "
        f"{other}. How old is {other} now?"
    )
    total = young + old
    return MathProblem(
        kind="ages", topic="systems", question=question, numbers=(total, years, times), answer=Fraction(young),
        calculation=f"({total} + 2 * {years}) / ({times} + 1) - {years}",
        mistakes=(f"({total} + {years}) / ({times} + 1) - {years}", f"({total} + 2 * {years}) / ({times} + 1)",
                  f"{total} / ({times} + 1)"),
        steps=5,
    )  # fmt: skip


def meeting_again(dice: Dice) -> MathProblem:
    """Two periods that start together."""
    a, b = dice.between(6, 36), dice.between(6, 36)
    while gcd(a, b) in (1, a, b):
        a, b = dice.between(6, 36), dice.between(6, 36)
    question = dice.pick(
        (
            f"Two lighthouses flash together at midnight. One flashes every {a} seconds, the other every {b} seconds. After "
            "how many seconds do they flash together again?",
            f"Buses of two lines leave the station together. One line leaves every {a} minutes, the other every {b} minutes. "
            "How many minutes pass until they leave together again?",
        )
    )
    return MathProblem(
        kind="meeting_again", topic="number theory", question=question, numbers=(a, b), answer=Fraction(lcm(a, b)),
        calculation=f"lcm({a}, {b})", mistakes=(f"{a} * {b}", f"gcd({a}, {b})", f"{a} + {b}"), steps=2,
    )  # fmt: skip


def remainder_of_power(dice: Dice) -> MathProblem:
    """The remainder of a large power."""
    base, exponent, modulus = dice.between(2, 12), dice.between(15, 90), dice.between(5, 19)
    while gcd(base, modulus) != 1 or pow(base, exponent, modulus) == 1:
        base, exponent, modulus = dice.between(2, 12), dice.between(15, 90), dice.between(5, 19)
    question = f"What is the remainder when {base}^{exponent} is divided by {modulus}?"
    return MathProblem(
        kind="remainder_of_power", topic="number theory", question=question, numbers=(base, exponent, modulus),
        answer=Fraction(pow(base, exponent, modulus)), calculation=f"{base}**{exponent} % {modulus}",
        mistakes=(f"{base}**{exponent % modulus} % {modulus}", f"{base} * {exponent} % {modulus}", f"{base} % {modulus}"),
        steps=4,
    )  # fmt: skip


def multiples_of_either(dice: Dice) -> MathProblem:
    """How many numbers up to a bound are multiples of one of two numbers."""
    a, b, most = dice.between(3, 9), dice.between(4, 12), dice.between(10, 60) * 10
    while a == b or lcm(a, b) in (a, b):
        a, b = dice.between(3, 9), dice.between(4, 12)
    question = f"How many whole numbers from 1 to {most} are divisible by {a} or by {b} (or by both)?"
    return MathProblem(
        kind="multiples_of_either", topic="number theory", question=question, numbers=(a, b, most),
        answer=Fraction(most // a + most // b - most // lcm(a, b)),
        calculation=f"{most} // {a} + {most} // {b} - {most} // lcm({a}, {b})",
        mistakes=(f"{most} // {a} + {most} // {b}", f"{most} // {a} + {most} // {b} - {most} // ({a} * {b})",
                  f"{most} // lcm({a}, {b})"),
        steps=5,
    )  # fmt: skip


def committee(dice: Dice) -> MathProblem:
    """A committee with so many of each of two groups."""
    women, men = dice.between(4, 9), dice.between(4, 9)
    w, m = dice.between(1, 3), dice.between(1, 3)
    question = (
        f"A club has {women} women and {men} men. In how many ways can it choose a committee of {w} "
        f"{'woman' if w == 1 else 'women'} and {m} {'man' if m == 1 else 'men'}?"
    )
    return MathProblem(
        kind="committee", topic="combinatorics", question=question, numbers=(women, men, w, m),
        answer=Fraction(comb(women, w) * comb(men, m)), calculation=f"comb({women}, {w}) * comb({men}, {m})",
        mistakes=(f"comb({women}, {w}) + comb({men}, {m})", f"comb({women + men}, {w + m})",
                  f"perm({women}, {w}) * perm({men}, {m})"),
        steps=3,
    )  # fmt: skip


def row_of_letters(dice: Dice) -> MathProblem:
    """Different orders of a word with repeated letters."""
    word = dice.pick(
        ("BANANA", "LETTER", "PEPPER", "BALLOON", "COFFEE", "CANNON", "TEETH", "SEVEN", "PAPAYA", "COMMON", "ERROR", "KAYAK",
         "LEVEL", "MAMMAL", "OTTO", "TOMATO", "BUBBLE", "GIGGLE", "ASSESS", "MISSISSIPPI", "COCOON", "VOODOO", "RACECAR",
         "ADDED", "EERIE", "SLEEPLESS", "TATTOO", "HAPPY", "SUMMER", "PUZZLE", "CHEESE", "BOTTLE", "PILLOW", "KITTEN")
    )  # fmt: skip
    counts = sorted((word.count(letter) for letter in set(word)), reverse=True)
    repeated = [n for n in counts if n > 1]
    answer = factorial(len(word))
    for n in repeated:
        answer //= factorial(n)
    question = dice.pick(
        (
            f"How many different arrangements do the letters of the word {word} have?",
            f"In how many distinct orders can the letters of {word} be written?",
        )
    )
    below = " / ".join(f"factorial({n})" for n in repeated)
    return MathProblem(
        kind="row_of_letters", topic="combinatorics", question=question, numbers=(len(word), *counts), answer=Fraction(answer),
        calculation=f"factorial({len(word)}) / {below}",
        mistakes=(f"factorial({len(word)})", f"factorial({len(word)}) / factorial({repeated[0]}) / 3",
                  f"factorial({len(word)}) / {repeated[0]}"),
        steps=2 + len(repeated),
    )  # fmt: skip


def grid_walks(dice: Dice) -> MathProblem:
    """Shortest ways over a grid through a crossing."""
    a, b, c, d = (dice.between(1, 4) for _ in range(4))
    question = (
        f"In a town with a square grid of streets, a postman walks {a + c} blocks east and {b + d} blocks north, and passes "
        f"the fountain that lies {a} {'block' if a == 1 else 'blocks'} east and {b} north of the start. He never turns back. "
        "How many different ways can he take?"
    )
    return MathProblem(
        kind="grid_walks", topic="combinatorics", question=question, numbers=(a, b, c, d),
        answer=Fraction(comb(a + b, a) * comb(c + d, c)), calculation=f"comb({a + b}, {a}) * comb({c + d}, {c})",
        mistakes=(f"comb({a + b + c + d}, {a + c})", f"comb({a + b}, {a}) + comb({c + d}, {c})", f"2**{a + b + c + d}"),
        steps=4,
    )  # fmt: skip


TEMPLATES: tuple[ProblemTemplate, ...] = (
    there_and_back, working_together, catching_up, heads_and_legs, two_baskets, ages, meeting_again, remainder_of_power,
    multiples_of_either, committee, row_of_letters, grid_walks,
)  # fmt: skip
"""All templates of this file."""
