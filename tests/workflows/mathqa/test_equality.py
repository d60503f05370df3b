import importlib.util
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from vinelm.errors import ConfigError
from vinelm.workflows.mathqa import equality, mathqa
from vinelm.workflows.mathqa.equality import is_equal, same_answer, same_text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("3/4", r"\frac34"), (r"1+\sqrt{2}", r"\sqrt2+1"), ("12", "12 km"), ("1/2", r"50\%"), ("50", "50%"),
        ("1/3", "0.333333"),
        ("5", "x=5"), ("1200", "1,200"), ("12.5", "$12.50"), ("2^{10}", "1024"), ("7", "7.0"),
    ],
)  # fmt: skip
def test_the_same_value(one, other):
    assert is_equal(one, other)
    assert same_answer(one, other)
    assert same_answer(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [("5", "6"), ("1/3", "0.33"), ("5", "nan"), ("5", r"\infty"), ("5", ""), ("", ""), ("B", "C"),
     ("E", "e"), (r"\sqrt2", r"\sqrt3")],
)  # fmt: skip
def test_other_values(one, other):
    assert not same_text(one, other)
    assert not same_answer(one, other)
    assert not same_answer(other, one)


def test_plain_numbers_ask_no_process(monkeypatch):
    monkeypatch.setattr(equality, "_judged", None)
    is_equal.cache_clear()
    assert is_equal("7/2", "3.50")
    assert not is_equal("7", "8")
    assert not is_equal("7", "8" * 500)


@pytest.mark.parametrize(
    "bomb",
    ["9^{9^{9^9}}", "99999!!!", r"\prod_{k=1}^{100000} (1+1/k)", "{" * 190, "(((((1+2)^99)^99)^99)^99)^99",
     "2^{2^{30}} - 2^{2^{30}} + 5"],
)  # fmt: skip
def test_a_hostile_answer_is_killed_and_the_next_one_is_compared(bomb, monkeypatch):
    monkeypatch.setattr(equality, "TIMEOUT_S", 0.2)
    assert not is_equal("5", bomb)
    monkeypatch.setattr(equality, "TIMEOUT_S", 10.0)
    assert is_equal("3/4", r"\tfrac34")


def test_an_answer_runs_no_code(tmp_path):
    target = tmp_path / "made"
    assert not is_equal("5", f"__import__('os').mkdir('{target}')")
    assert not target.exists()


def test_many_threads_get_their_own_answers():
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: is_equal(str(i % 5), rf"\frac{{{i % 5 * 7}}}{{7}} "), range(5, 40)))
    assert all(found)


def test_without_math_verify_the_workflow_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "math_verify", None)
    with pytest.raises(ConfigError, match=r"mathqa needs math_verify: pip install 'vinelm\[workloads\]'"):
        mathqa()


def test_the_library_is_loaded_only_in_the_other_process():
    program = "import sys; from vinelm.workflows.mathqa import mathqa; mathqa(); print('sympy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout == "False\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the process needs fork")
def test_where_nothing_can_be_forked_it_compares_here(monkeypatch):
    assert importlib.util.find_spec("math_verify")
    monkeypatch.setattr(equality, "is_supported", lambda: False)
    monkeypatch.setattr(equality, "SESSIONS", None)
    is_equal.cache_clear()
    assert is_equal("3/4", r"\frac{6}{8}")
    assert is_equal("3/4", r"\frac34")
