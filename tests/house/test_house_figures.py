"""How the figures of the house are counted, on sources of a few lines."""

import ast

import pytest
from house_parts import folders, protocols, source, switches  # the folder of house_script is searched
from kit.house import house_script


def nodes(text):
    return list(ast.walk(ast.parse(text)))


def test_a_circle_between_folders_needs_no_circle_between_files():
    arrows = {"a.one": {"b.one"}, "b.two": {"a.two"}, "b.one": set(), "a.two": set(), "c.one": {"a.one"}}
    assert house_script.circles(arrows) == []
    folder_of = {name: name[0] for name in arrows}
    assert folders.groups(folders.folder_arrows(arrows, folder_of)) == [["a", "b"]]


@pytest.mark.parametrize(
    ("arrows", "expected"),
    [
        ({}, []),
        ({"a": {"b"}, "b": {"c"}}, []),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}, [["a", "b", "c"]]),
        ({"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"e"}, "e": {"c"}}, [["c", "d", "e"], ["a", "b"]]),
        ({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": {"a"}}, [["a", "b", "c", "d"]]),
    ],
)
def test_groups_that_reach_each_other(arrows, expected):
    assert folders.groups(arrows) == expected


def test_lines_that_ask_for_a_kind():
    text = """
if trie.is_linear and not annotated.is_merged:
    pass
self.is_tree = True
isinstance(found, ContingentDecision)
isinstance(trie, (str, MergedTrie))
isinstance(trie, AnnotatedTrie | str)
isinstance(plans, vinelm.MergedPlan)
isinstance(step, Branch)
annotated.arm is None or trie.outcomes is not None
signals is None
"""
    assert switches.kind_switches(nodes(text)) == [2, 5, 6, 8]
    assert switches.absence_switches(nodes(text)) == [10]


def test_where_kinds_may_be_told_apart():
    allowed = ("vinelm.trie", "vinelm.trie.merging", "vinelm.controller.planning.graph")
    assert [switches.is_allowed(name) for name in allowed] == [True, True, True]
    assert not switches.is_allowed("vinelm.trie_reload")
    assert not switches.is_allowed("vinelm.controller.session")


def test_comments_say_why_and_directives_do_not():
    text = """
# why
x = 1  # and here
y = 2  # noqa: F841
# -- a ruler ----
z = "# no comment"  # type: ignore[assignment]
"""
    assert source.comments(text) == [2, 3]
    assert source.skips("x = 1\ny = [1,2]  # fmt: " + "skip\n") == [2]


def test_a_protocol_and_its_implementations():
    text = """
class Engine(Protocol):
    name: str
    def run(self): ...
class Host(Protocol):
    def host(self): ...
class Function(Protocol):
    def __call__(self): ...
class Base:
    def __init__(self):
        self.name = "x"
class One(Base):
    def run(self): ...
class Two:
    name = "y"
    def run(self): ...
class Three:
    def host(self): ...
"""
    found = protocols.implementations(protocols.classes({"m": nodes(text)}))
    by_name = {protocol.name: [one.name for one in own] for protocol, own in found.items()}
    assert by_name == {"Engine": ["One", "Two"], "Host": ["Three"]}
    assert protocols.lonely(found, public=()) == ["m.Host (1)"]
    assert protocols.lonely(found, public=("Host",)) == []
