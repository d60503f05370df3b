"""Models that a function makes by their names: which ones a node asks it for, read off the source."""

from enum import Enum, StrEnum
from functools import cache
from types import SimpleNamespace

import pytest

from vinelm.scaffold.factories import names_asked


class Size(StrEnum):
    SMALL = "gpt-5-mini"


class Plain(Enum):
    LARGE = "gpt-5"


class Loud:
    @property
    def model(self):
        raise AssertionError("the author's code ran")


CONSTANT = "gpt-5-nano"
settings, loud = SimpleNamespace(model="gpt-4o"), Loud()


def make(temperature, name="gpt-4.1"):
    """A model."""


class Holder:
    def make(self, name):
        """A model."""

    def node(self):
        return self.make("gpt-4o-mini")


def constant(state):
    return make(0, CONSTANT)


def of_a_class(state):
    return make(name=Size.SMALL, temperature=0)


def of_an_enum(state):
    return make(0, Plain.LARGE)


def of_settings(state):
    return make(0, settings.model)


def by_default(state):
    return make(0)


def configured(state, config):
    name = config.get("configurable", {}).get("model", Size.SMALL)
    return make(0, name)


def if_nothing_else(state, config):
    name = config.get("model") or "gpt-5"
    return make(0, name)


def from_the_environment(state):
    import os

    return make(0, os.getenv("MY_MODEL", "gpt-5"))


def twice(state):
    return make(0, "gpt-5"), make(0, Size.SMALL)


def computed(state):
    return make(0, CONSTANT.upper())


def one_of_two_is_computed(state):
    return make(0, "gpt-5"), make(0, state["model"])


def assigned_twice(state):
    name = "gpt-5"
    if state:
        name = "gpt-4o"
    return make(0, name)


def of_itself(state):
    name = name  # noqa: F823, PLW0127
    return make(0, name)


def of_a_property(state):
    return make(0, loud.model)


def of_nothing(state):
    return state


name = "gpt-5"  # what a local name hides


def of_a_parameter(state, name):
    return make(0, name)


def of_a_loop(state):
    return [make(0, name) for name in state]


def of_a_parameters_attribute(state, settings):
    return make(0, settings.model)


def assigned_and_looped(state):
    name = "gpt-4o"
    for name in state:  # noqa: B007
        pass
    return make(0, name)


def annotated(state):
    name: str = "gpt-4o"
    return make(0, name)


def of_a_closure():
    name = "gpt-4o"

    def node(state):
        return make(0, name)

    return node


in_a_closure = of_a_closure()
by_another_name = make


def aliased(state):
    return by_another_name(0, "gpt-4o")


def of_another_function(state):
    return others.make(0, "gpt-4o")


others = SimpleNamespace(make=len)


ASKED = {
    constant: ["gpt-5-nano"],
    of_a_class: ["gpt-5-mini"],
    of_an_enum: ["gpt-5"],
    of_settings: ["gpt-4o"],
    by_default: ["gpt-4.1"],
    configured: ["gpt-5-mini"],
    if_nothing_else: ["gpt-5"],
    from_the_environment: ["gpt-5"],
    twice: ["gpt-5", "gpt-5-mini"],
    computed: [],
    one_of_two_is_computed: [],
    assigned_twice: [],
    of_itself: [],
    of_a_property: [],
    of_nothing: [],
    of_a_parameter: [],
    of_a_loop: [],
    of_a_parameters_attribute: [],
    assigned_and_looped: [],
    annotated: ["gpt-4o"],
    in_a_closure: [],
    aliased: ["gpt-4o"],
    of_another_function: [],
}


@pytest.mark.parametrize("node", ASKED, ids=lambda node: node.__name__)
def test_what_a_node_asks_for_is_read_and_nothing_is_run(node):
    assert names_asked(make.__code__, "name", [node, make]) == ASKED[node]


def test_what_the_environment_says_comes_first(monkeypatch):
    monkeypatch.setenv("MY_MODEL", "gpt-4o")
    assert names_asked(make.__code__, "name", [from_the_environment, make]) == ["gpt-4o"]


def test_a_method_is_asked_without_its_object():
    assert names_asked(Holder.make.__code__, "name", [Holder.node, Holder.make]) == ["gpt-4o-mini"]


def test_a_cached_function_is_the_function():
    kept = cache(make)
    assert names_asked(kept.__wrapped__.__code__, "name", [constant, make]) == ["gpt-5-nano"]


def test_code_without_a_source_says_nothing():
    scope = {}
    exec("def node(state):\n    return make(0, 'gpt-5')\ndef make(temperature, name):\n    pass", scope)
    assert names_asked(scope["make"].__code__, "name", [scope["node"], scope["make"]]) == []
