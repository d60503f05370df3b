"""What people write for quantities and names is read as they mean it, or not at all."""

import math

import pytest

from vinelm.errors import ConfigError
from vinelm.meant import count_of, did_you_mean, dollars_of, fraction_meant, fraction_of, number_meant, seconds_of
from vinelm.objective import Objective


@pytest.mark.parametrize(
    ("text", "dollars"),
    [
        ("5", 5.0),
        ("$5", 5.0),
        ("5$", 5.0),
        ("$0.002", 0.002),
        ("5 USD", 5.0),
        ("usd 5", 5.0),
        ("$1,000", 1000.0),
        ("20 cents", 0.2),
        ("1e-3", 0.001),
        (".5", 0.5),
        ("-$3", -3.0),
        ("-3", -3.0),
    ],
)
def test_dollars_are_read_with_their_signs(text, dollars):
    assert dollars_of(text) == dollars


@pytest.mark.parametrize("text", ["", "$", "five", "1,5", "$$5", "5 EUR", "1.2.3"])
def test_what_is_no_amount_of_dollars_is_refused(text):
    with pytest.raises(ValueError, match=r".*"):
        dollars_of(text)


@pytest.mark.parametrize(("text", "fraction"), [("0.8", 0.8), ("80%", 0.8), ("80 %", 0.8), ("80 percent", 0.8), ("80", 80.0)])
def test_fractions_are_read_in_percent_where_they_say_so(text, fraction):
    assert fraction_of(text) == fraction


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7h", 25_200.0),
        ("1h30m", 5400.0),
        ("45 s", 45.0),
        ("5min", 300.0),
        ("0.5h", 1800.0),
        ("2d", 172_800.0),
        ("7 hours", 25_200.0),
        ("250ms", 0.25),
        ("90 seconds", 90.0),
    ],
)
def test_durations(text, seconds):
    assert seconds_of(text, is_bare_allowed=False) == seconds
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "7", "h", "-1h", "7 parsecs"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match=r".*"):
        seconds_of(text, is_bare_allowed=False)


def test_a_bare_number_is_one_of_seconds_where_the_name_says_so():
    assert seconds_of("7") == 7.0


def test_counts_have_thousands_and_no_fractions():
    assert count_of("1,000") == count_of("1_000") == 1000
    for text in ("1.5", "1,00", "x"):
        with pytest.raises(ValueError, match=r".*"):
            count_of(text)


def test_a_slip_is_answered_with_the_name():
    assert did_you_mean("Generat", ["generate", "repair"]) == " (did you mean 'generate'?)"
    assert did_you_mean("other", ["generate", "repair"]) == ""
    assert did_you_mean(3, {"a": 1}) == ""


def test_only_what_can_be_percent_is_taken_for_percent():
    assert fraction_meant(80) == " (did you mean 0.8?)"
    assert [fraction_meant(value) for value in (0.5, 1.0, 101, -5, math.inf, math.nan, "80")] == [""] * 7


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("min_accuracy", 80, "did you mean 0.8?"),
        ("min_accuracy", "80%", "did you mean 0.8?"),
        ("max_cost_usd", "$5", "did you mean 5?"),
        ("max_latency_s", "90s", "did you mean 90?"),
        ("confidence", 95, "did you mean 0.95?"),
    ],
)
def test_a_keyword_of_python_stays_a_number_and_says_which(field, value, words):
    with pytest.raises(ConfigError, match=f"^{field} is") as error:
        Objective(maximize="accuracy", **{field: value})
    assert words in str(error.value)


def test_a_text_that_is_no_number_is_no_suggestion():
    assert number_meant("many") == ""
    with pytest.raises(ConfigError, match=r"did you mean 'accuracy'\?"):
        Objective(maximize="acuracy")
    with pytest.raises(ConfigError, match=r"did you mean 'max_cost_usd'\?"):
        Objective.from_dict({"maximize": "accuracy", "max_cost_us": 1.0})
