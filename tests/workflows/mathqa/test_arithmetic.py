from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vinelm.workflows.mathqa.arithmetic import number, value_of


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,200", 1200), ("$12.50", Fraction(25, 2)), ("-$3", -3), ("−3", -3), ("3/4", Fraction(3, 4)), ("12.", 12),
        (r"\frac{3}{4}", Fraction(3, 4)), (r"-\dfrac{3}{4}", Fraction(-3, 4)),
        (".5", Fraction(1, 2)), ("1.5/3", Fraction(1, 2)),
    ],
)  # fmt: skip
def test_numbers_are_exact(text, value):
    assert number(text) == value


@pytest.mark.parametrize("text", ["", ".", "/", "3/0", "nan", "inf", "1e400", "1/2/3", "35%", "1,20", "x", "٣", "9" * 400])
def test_other_text_is_no_number(text):
    assert number(text) is None


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2 + 3 * 4", 14), ("(1/3 + 1/4) * 12", 7), ("2^10", 1024), ("7**75 % 5", 3), ("-17 // 5", -4), ("comb(5, 2)", 10),
        ("lcm(12, 18) - gcd(12, 18)", 30), ("factorial(6) / factorial(2)", 360), ("$1,200 × 2 ÷ 3", 800),
        ("0.1 + 0.2", Fraction(3, 10)),
        ("floor(7/2) + ceil(7/2)", 7), ("(-1)**99999999999999999999", -1), ("0**0", 1), ("min(3, 2) + max(3, 2) + abs(-4)", 9),
    ],
)  # fmt: skip
def test_expressions_are_exact(expression, value):
    assert value_of(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "", "9**9**9**9", "2**99999999999", "10**-99999", "factorial(99999)", "comb(99999, 5)", "factorial(2.5)", "1/0",
        "0**-1", "2**0.5",
        "(" * 150 + "1" + ")" * 149, "1" + "+1" * 400, "x + 1",
        "__import__('os')", "print(1)", "[1]*10**9", "'a'*9", "True", "1 if 1 else 2",
        "gcd", "max()", "gcd(1.5, 2)", "5(3)", "1.5.2", "lambda: 1", "1e5", "nan",
    ],
)  # fmt: skip
def test_what_is_no_small_arithmetic_has_no_value(expression):
    assert value_of(expression) is None


@given(st.text(alphabet="0123456789+-*/%^().,$ factorilcmbgdpne", max_size=60))
def test_nothing_raises_or_hangs(text):
    for found in (value_of(text), number(text)):
        assert found is None or isinstance(found, Fraction)


@given(st.fractions())
def test_a_number_reads_what_is_written(value):
    assert number(str(value)) == value_of(str(value)) == value
