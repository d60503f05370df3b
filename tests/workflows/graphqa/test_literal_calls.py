"""Literal calls are found in a program that still streams, as soon as they are complete, and nothing that is no literal is."""

import ast
import random

import pytest

from vinelm.workflows.graphqa.literal_calls import LiteralCalls

FOUND = {
    "x = RetrieveNode('Ada')": ["Ada"],
    'RetrieveNode( "A\\"b" )': ['A"b'],
    "RetrieveNode('it\\'s')\nRetrieveNode('')": ["it's", ""],
    "x = ''\nRetrieveNode('a')": ["a"],
    "# RetrieveNode('a')\nRetrieveNode('b')": ["b"],
    "RetrieveNode('''a\n'b' \"c\"''')": ["a\n'b' \"c\""],
    'RetrieveNode("""a""b""")': ['a""b'],
    "RetrieveNode(r'a\\d')": ["a\\d"],
    "RetrieveNode('caf\\u00e9')": ["café"],
    "RetrieveNode('a\\\nb')": ["ab"],
    "RetrieveNode ( 'a' # c\n )": ["a"],
    "NeighbourCheck(RetrieveNode('a'), RetrieveNode('b'))": ["a", "b"],
    "RetrieveNode(RetrieveNode('a'))": ["a"],
    "I don't know\n```python\nRetrieveNode('a')\n```": ["a"],
    "'''\n```python\nRetrieveNode('a')": ["a"],
}
NOT_FOUND = [
    "RetrieveNode('a'", "RetrieveNode(x)", "RetrieveNode('a' + x)", "RetrieveNode('a' 'b')", "RetrieveNode('a', 'b')",
    "RetrieveNode(('a'))", "RetrieveNode(f'a')", "RetrieveNode(b'a')", "RetrieveNode(rb'a')", "MyRetrieveNode('a')",
    "RetrieveNodes('a')", "x.RetrieveNode('a')", "RetrieveNode[0]('a')", "'RetrieveNode(\"a\")'", '"""RetrieveNode(\'a\')"""',
    "f'{RetrieveNode(\"a\")}'", "# RetrieveNode('a')", "RetrieveNode('\\xzz')", "RetrieveNode('\\d')", "RetrieveNode('a\n')",
    "RetrieveNode'a')", "RetrieveNode",
]  # fmt: skip


def found_in(text, rng=None):
    calls, found, at = LiteralCalls("RetrieveNode"), [], 0
    while at < len(text):
        size = rng.randint(1, 9) if rng else len(text)
        found += calls(text[at : at + size])
        at += size
    return found


@pytest.mark.parametrize("text", [*FOUND, *NOT_FOUND])
def test_plain_literals_are_found_however_the_text_is_cut(text):
    wanted = FOUND.get(text, [])
    assert [found_in(text, random.Random(seed)) for seed in range(20)] == [wanted] * 20


def test_a_call_is_found_with_its_last_character():
    calls = LiteralCalls("RetrieveNode")
    assert calls("print(NodeFeature(RetrieveNode('A") == calls("da'") == []
    assert calls(")") == ["Ada"]
    assert calls(", 'name'))") == []


def test_it_finds_in_random_programs_what_the_parser_finds():
    rng = random.Random(5)
    for _ in range(200):
        names = ["".join(rng.choices("ab'\"\\\n #`(){é", k=rng.randint(0, 6))) for _ in range(3)]
        lines = [f"x = [RetrieveNode({name!r}), 'y']  # RetrieveNode('no')" for name in names]
        program = "\n".join([*lines, f"t = {names!r}", "print(NodeDegree(RetrieveNode('''z'''), \"e\"))"])
        tree = ast.walk(ast.parse(program))
        wanted = [call.args[0].value for call in tree if isinstance(call, ast.Call) and call.func.id == "RetrieveNode"]
        assert sorted(found_in(program, rng)) == sorted(wanted)


def test_long_answers_take_linear_time():
    """Strings that never end and names that never end hold no more than what they are compared with."""
    calls = LiteralCalls("RetrieveNode")
    assert calls("a" * 100_000) == []
    assert len(calls._word) <= len("RetrieveNode") + 1
    assert calls(' = """' + "a" * 100_000) == []
    assert len(calls._body) <= 3
    assert calls('"""; RetrieveNode("Ada")') == ["Ada"]
