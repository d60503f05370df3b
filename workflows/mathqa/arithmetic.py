"""Computes exact values of numbers and arithmetic expressions that a model wrote, with bounds on size so that nothing hangs."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType

MOST_CHARS = 300
"""The maximum length of an expression; longer expressions have no value."""
MOST_BITS = 4096
"""The maximum number of bits of the numerator or denominator of every intermediate value."""
MOST_NODES = 200
MOST_OF_INTEGER_FUNCTION = 1_000
"""The largest argument of ``factorial``, ``comb`` and ``perm``."""
_NUMBER = re.compile(r"([+-]?)([0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)?(?:\.([0-9]*))?")
_FRACTION = re.compile(r"([+-]?)\\[dt]?frac\{([0-9]{1,60})\}\{([0-9]{1,60})\}")
_THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))(?![^(]*\))")
"""Matches a comma between thousands, but not between the arguments of a function."""
_TOKENS = re.compile(r"(?:[\s0-9.,+*/%()-]|(?<![A-Za-z0-9])(?:factorial|comb|perm|gcd|lcm|min|max|abs|floor|ceil)(?=\s*\())*")
_SYMBOLS = str.maketrans({"^": "**", "×": "*", "÷": "/", "·": "*", "−": "-", "$": ""})
_BINARY: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: operator.truediv,
        ast.FloorDiv: lambda a, b: Fraction(a // b),
        ast.Mod: operator.mod,
    }
)


def _of_whole(function: Callable[..., int], most: float = math.inf) -> Callable[..., Fraction]:
    """Return ``function``, which takes whole numbers, changed to take fractions.

    The new function raises :class:`ValueError` unless all arguments are whole numbers with an absolute value of at most
    ``most``.
    """

    def bounded(*values: Fraction) -> Fraction:
        if any(value.denominator != 1 or abs(value) > most for value in values):
            raise ValueError("not whole numbers within the bound")
        return Fraction(function(*map(int, values)))

    return bounded


_FUNCTIONS: Mapping[str, Callable[..., Fraction]] = MappingProxyType(
    {
        "factorial": _of_whole(math.factorial, MOST_OF_INTEGER_FUNCTION),
        "comb": _of_whole(math.comb, MOST_OF_INTEGER_FUNCTION),
        "perm": _of_whole(math.perm, MOST_OF_INTEGER_FUNCTION),
        "gcd": _of_whole(math.gcd),
        "lcm": _of_whole(math.lcm),
        "min": min,
        "max": max,
        "abs": abs,
        "floor": lambda value: Fraction(math.floor(value)),
        "ceil": lambda value: Fraction(math.ceil(value)),
    }
)


def number(text: str) -> Fraction | None:
    r"""Return the exact value of the number in a text; None if the text is not a number.

    A number is a whole number (``1,200``), a decimal, ``3/4`` or ``\frac{3}{4}``, optionally with a sign before it and ``$``
    around it.
    """
    if len(text) > MOST_CHARS:
        return None
    plain = text.strip().rstrip(".").replace("−", "-").replace("\\$", "$")
    sign = -1 if plain.startswith("-$") else 1
    plain = plain.removeprefix("-$").strip("$ ")
    found = _FRACTION.fullmatch(plain)
    if found is not None:
        parts: tuple[Fraction | None, ...] = (Fraction(int(found[2])), Fraction(int(found[3])))
        sign *= -1 if found[1] == "-" else 1
    else:
        parts = tuple(_decimal(part.strip()) for part in plain.split("/", 1))
    top, below = parts[0], parts[1] if len(parts) > 1 else Fraction(1)
    return None if top is None or below is None or not below else sign * top / below


def _decimal(text: str) -> Fraction | None:
    found = _NUMBER.fullmatch(text)
    if found is None or not (found[2] or found[3]):
        return None
    digits = (found[2] or "0").replace(",", "") + (found[3] or "")
    return Fraction(int(found[1] + digits), 10 ** len(found[3] or ""))


def value_of(expression: str) -> Fraction | None:
    """Return the exact value of an arithmetic expression; None if the text is not an expression, or too large.

    Expressions may have numbers, ``+ - * / // % **`` (also ``^``, ``×``, ``÷``), brackets, and the functions ``factorial``,
    ``comb``, ``perm``, ``gcd``, ``lcm``, ``min``, ``max``, ``abs``, ``floor`` and ``ceil``.
    """
    if len(expression) > MOST_CHARS:
        return None
    text = expression.strip().translate(_SYMBOLS)
    text = _THOUSANDS.sub("", text)
    if not _TOKENS.fullmatch(text):
        return None
    try:
        tree = ast.parse(text, mode="eval")
        if sum(1 for _ in ast.walk(tree)) > MOST_NODES:
            return None
        return _evaluated(tree.body)
    except (ArithmeticError, ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def _evaluated(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
            found = Fraction(str(node.value))
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=inner):
            found = _evaluated(inner) * (-1 if isinstance(node.op, ast.USub) else 1)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            found = _power(_evaluated(left), _evaluated(right))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            found = _BINARY[type(op)](_evaluated(left), _evaluated(right))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            found = Fraction(_FUNCTIONS[name](*map(_evaluated, arguments)))
        case _:
            raise ValueError("not arithmetic")
    if max(found.numerator.bit_length(), found.denominator.bit_length()) > MOST_BITS:
        raise ValueError("too large")
    return found


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    """Return a power with a whole exponent; raise an error, before computing it, if it would be too large."""
    if exponent.denominator != 1:
        raise ValueError("not a whole exponent")
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if bits > 1 and bits * abs(exponent) > 2 * MOST_BITS:
        raise ValueError("too large")
    if abs(base) <= 1 and base.denominator == 1:  # 0, 1 and -1 to any power
        exponent = Fraction(int(exponent) % 2 if base < 0 else min(int(exponent), 1))
    return Fraction(base ** int(exponent))
