"""A part of an application that asks a person. Loaded only when a node that imports it runs."""

from langgraph.types import interrupt


class Desk:
    def ask(self, what):
        return interrupt(what)


def approve(what):
    return Desk().ask(what)
