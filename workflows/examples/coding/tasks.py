"""Small functions to write, each of another kind; and the families."""

from __future__ import annotations

from vinelm.workflows.examples.coding.task import task
from vinelm.workflows.examples.coding.task_families import families

TASKS = (
    task(
        "clamp",
        "Write clamp(x, low, high): x, but no less than low and no more than high. Swapped bounds are put in order.",
        (
            """
        def clamp(x, low, high):
            low, high = min(low, high), max(low, high)
            return max(low, min(x, high))
        """,
            """
        def clamp(x, low, high):
            return min(low, max(x, high))
        """,
            """
        def clamp(x, low, high):
            return max(low, min(x, high))
        """,
        ),
        """
        clamp(5, 0, 3) == 3
        clamp(-1, 0, 3) == 0
        clamp(2, 0, 3) == 2
        """,
        """
        clamp(5, 3, 0) == 3
        clamp(-5, 3, 0) == 0
        clamp(1, 1, 1) == 1
        """,
        hard=0.2,
    ),
    task(
        "roman",
        "Write roman(n): the Roman numeral of an integer from 1 to 3999.",
        (
            """
        PAIRS = [(1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"),
                 (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")]


        def roman(n):
            out = ""
            for value, letters in PAIRS:
                out += letters * (n // value)
                n %= value
            return out
        """,
            """
        def roman(n):
            return "I" * n
        """,
            """
        PAIRS = [(1000, "M"), (500, "D"), (100, "C"), (50, "L"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")]


        def roman(n):
            out = ""
            for value, letters in PAIRS:
                out += letters * (n // value)
                n %= value
            return out
        """,
        ),
        """
        roman(4) == "IV"
        roman(29) == "XXIX"
        roman(1066) == "MLXVI"
        """,
        """
        roman(1994) == "MCMXCIV"
        roman(444) == "CDXLIV"
        """,
        hard=0.5,
    ),
    task(
        "merge",
        "Write merge(intervals): a sorted list of [start, end] lists in which overlapping or touching intervals are one.",
        (
            """
        def merge(intervals):
            out = []
            for start, end in sorted(intervals):
                if out and start <= out[-1][1]:
                    out[-1][1] = max(out[-1][1], end)
                else:
                    out.append([start, end])
            return out
        """,
            """
        def merge(intervals):
            return sorted(intervals)
        """,
            """
        def merge(intervals):
            out = []
            for start, end in sorted(intervals):
                if out and start <= out[-1][1]:
                    out[-1][1] = end
                else:
                    out.append([start, end])
            return out
        """,
        ),
        """
        merge([[1, 3], [2, 4]]) == [[1, 4]]
        merge([[5, 6], [1, 2]]) == [[1, 2], [5, 6]]
        """,
        """
        merge([[1, 9], [2, 4]]) == [[1, 9]]
        merge([[1, 2], [2, 3]]) == [[1, 3]]
        merge([]) == []
        """,
        hard=0.6,
    ),
    task(
        "balanced",
        "Write balanced(text): whether every bracket ()[]{} of the text is closed by its own kind in the right order.",
        (
            """
        def balanced(text):
            stack = []
            for letter in text:
                if letter in "([{":
                    stack.append(letter)
                elif letter in ")]}" and (not stack or stack.pop() + letter not in ("()", "[]", "{}")):
                    return False
            return not stack
        """,
            """
        def balanced(text):
            return text.startswith("(")
        """,
            """
        def balanced(text):
            return all(text.count(a) == text.count(b) for a, b in ("()", "[]", "{}"))
        """,
        ),
        """
        balanced("(a[b]{c})")
        not balanced("(()")
        """,
        """
        not balanced(")(")
        not balanced("([)]")
        balanced("")
        """,
        hard=0.5,
    ),
    task(
        "median",
        "Write median(values): the median of a non-empty list of numbers; the list must not be changed.",
        (
            """
        def median(values):
            ranked, middle = sorted(values), len(values) // 2
            return ranked[middle] if len(ranked) % 2 else (ranked[middle - 1] + ranked[middle]) / 2
        """,
            """
        def median(values):
            return values[len(values) // 2]
        """,
            """
        def median(values):
            values.sort()
            middle = len(values) // 2
            return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2
        """,
        ),
        """
        median([3, 1, 2]) == 2
        median([4, 1, 3, 2]) == 2.5
        """,
        """
        (lambda v: (median(v), v)[1])([3, 1, 2]) == [3, 1, 2]
        median([7]) == 7
        """,
        hard=0.3,
    ),
    task(
        "slug",
        "Write slug(title): lower case, runs of anything but a-z and 0-9 become one hyphen, none at either end.",
        (
            """
        import re


        def slug(title):
            return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
        """,
            """
        def slug(title):
            return title.replace(" ", "-")
        """,
            """
        def slug(title):
            return "-".join(title.lower().split())
        """,
        ),
        """
        slug("Hello World") == "hello-world"
        slug("  A  b ") == "a-b"
        """,
        """
        slug("What's new?") == "what-s-new"
        slug("--a--") == "a"
        """,
        hard=0.4,
    ),
    task(
        "chunks",
        "Write chunks(values, size): the list cut into lists of size items, the last one shorter. ValueError for size < 1.",
        (
            """
        def chunks(values, size):
            if size < 1:
                raise ValueError("size must be at least 1")
            return [values[i:i + size] for i in range(0, len(values), size)]
        """,
            """
        def chunks(values, size):
            return [values[i:i + size] for i in range(len(values))]
        """,
            """
        def chunks(values, size):
            return [values[i:i + size] for i in range(0, len(values), size)]
        """,
        ),
        """
        chunks([1, 2, 3], 2) == [[1, 2], [3]]
        chunks([], 2) == []
        """,
        """
        isinstance(__import__("pytest").raises(ValueError, chunks, [1], -1).value, ValueError)
        chunks([1, 2], 5) == [[1, 2]]
        """,
        hard=0.3,
    ),
    task(
        "rotate",
        "Write rotate(values, k): a new list, moved k places to the right, round the end; k may be negative or large.",
        (
            """
        def rotate(values, k):
            if not values:
                return []
            k %= len(values)
            return values[-k:] + values[:-k] if k else list(values)
        """,
            """
        def rotate(values, k):
            return values[k:] + values[:k]
        """,
            """
        def rotate(values, k):
            return values[-k:] + values[:-k]
        """,
        ),
        """
        rotate([1, 2, 3], 1) == [3, 1, 2]
        rotate([1, 2, 3], 2) == [2, 3, 1]
        """,
        """
        rotate([1, 2, 3], 4) == [3, 1, 2]
        rotate([1, 2, 3], -1) == [2, 3, 1]
        rotate([], 3) == []
        """,
        hard=0.5,
    ),
    *families(),
)
