"""Families of similar coding tasks, one per small number, to have enough tasks for profiling."""

from __future__ import annotations

from vinelm.workflows.examples.coding.task import Task, task

NUMBERS = (2, 3, 4, 5, 6, 7, 8, 9)


def families() -> tuple[Task, ...]:
    """Return four tasks per number; larger numbers are more difficult for simulated models."""
    return tuple(family(k, 0.15 + 0.06 * k) for k in NUMBERS for family in (_digits, _every, _means, _shift))


def _digits(k: int, hard: float) -> Task:
    return task(
        f"digits_{k}",
        f"Write digits_{k}(n): the digits of the integer n in base {k} as text, after a minus sign where n is negative.",
        (
            f"""
            def digits_{k}(n):
                sign, n, out = "-" if n < 0 else "", abs(n), ""
                while n >= {k}:
                    out, n = str(n % {k}) + out, n // {k}
                return sign + str(n) + out
            """,
            f"""
            def digits_{k}(n):
                return str(n // {k})
            """,
            f"""
            def digits_{k}(n):
                out = ""
                while n > 0:
                    out, n = str(n % {k}) + out, n // {k}
                return out
            """,
        ),
        f"""
        digits_{k}({k}) == "10"
        digits_{k}({k * k + 1}) == "101"
        """,
        f"""
        digits_{k}(0) == "0"
        digits_{k}({-k}) == "-10"
        """,
        hard=hard,
    )


def _every(k: int, hard: float) -> Task:
    return task(
        f"every_{k}",
        f"Write every_{k}(values, start): one item in {k} of a list, from index start on; a negative one counts from the end.",
        (
            f"""
            def every_{k}(values, start):
                return values[start::{k}]
            """,
            f"""
            def every_{k}(values, start):
                return values[start:]
            """,
            f"""
            def every_{k}(values, start):
                return [value for index, value in enumerate(values) if index >= start and (index - start) % {k} == 0]
            """,
        ),
        f"""
        every_{k}(list(range(20)), 0) == list(range(0, 20, {k}))
        every_{k}(list(range(20)), 3) == list(range(3, 20, {k}))
        """,
        f"""
        every_{k}(list(range(20)), -1) == [19]
        every_{k}([], 0) == []
        """,
        hard=hard,
    )


def _means(k: int, hard: float) -> Task:
    return task(
        f"means_{k}",
        f"Write means_{k}(values): the mean of each run of {k} neighbours, in order, leaving the list as it is.",
        (
            f"""
            def means_{k}(values):
                return [sum(values[i:i + {k}]) / {k} for i in range(len(values) - {k - 1})]
            """,
            f"""
            def means_{k}(values):
                return [sum(values[i:i + {k}]) / {k} for i in range(len(values))]
            """,
            f"""
            def means_{k}(values):
                out = []
                while len(values) >= {k}:
                    out.append(sum(values[:{k}]) / {k})
                    values.pop(0)
                return out
            """,
        ),
        f"""
        means_{k}([6] * {k + 1}) == [6, 6]
        means_{k}([]) == []
        """,
        f"""
        (lambda values: (means_{k}(values), len(values))[1])([1] * {k + 3}) == {k + 3}
        means_{k}([1] * {k - 1}) == []
        """,
        hard=hard,
    )


def _shift(k: int, hard: float) -> Task:
    later = "abcdefghijklmnopqrstuvwxyz"[k]
    return task(
        f"shift_{k}",
        f"Write shift_{k}(text): each letter a-z and A-Z moved {k} places on, round the alphabet; all else as it is.",
        (
            f"""
            def shift_{k}(text):
                def moved(letter):
                    first = ord("a" if letter.islower() else "A")
                    return chr(first + (ord(letter) - first + {k}) % 26)
                return "".join(moved(c) if c.isascii() and c.isalpha() else c for c in text)
            """,
            f"""
            def shift_{k}(text):
                return "".join(chr(ord(c) + {k}) for c in text)
            """,
            f"""
            def shift_{k}(text):
                return "".join(chr(97 + (ord(c) - 97 + {k}) % 26) if "a" <= c <= "z" else c for c in text)
            """,
        ),
        f"""
        shift_{k}("a") == "{later}"
        shift_{k}("z, a") == "{"abcdefghijklmnopqrstuvwxyz"[k - 1]}, {later}"
        """,
        f"""
        shift_{k}("A") == "{later.upper()}"
        shift_{k}("é 1") == "é 1"
        """,
        hard=hard,
    )
