"""An application of one call whose requests have no labels, or some, and models that answer by a rule."""

import datetime
from typing import TypedDict

from langgraph.graph import END, START, StateGraph

from kit.worlds.replays import RuleChat, differs, truth, wrong
from vinelm import Request, Stage, Template, Workflow, as_today
from vinelm.catalog import Catalog, Price
from vinelm.errors import CallError
from vinelm.replay.kept import opened
from vinelm.traces import ObservationStore

BIG_USD, MINI_USD = 0.01, 0.001


class State(TypedDict, total=False):
    number: int
    answer: str


def build(vine):
    """The graph: one stage that asks its model about a number."""

    def solve(state: State, model):
        return {"answer": model.invoke(f"Question {state['number']}").text}

    graph = StateGraph(State)
    graph.add_node("solve", vine.stage("solve", solve))
    graph.add_edge(START, "solve")
    graph.add_edge("solve", END)
    return graph


def answer_of(state):
    """The answer in a final state."""
    return state["answer"]


def score(request, state):
    """The score of a request with a label."""
    return state["answer"] == request.data["label"]


def unlabelled(count, labelled=0, **scorer):
    """A workflow of so many requests, of which the first have labels."""
    some = {"score": score, "labels": ("label",)} if labelled else {}
    return Workflow(
        name="numbers",
        template=Template((Stage("solve", default="big"),)),
        build=build,
        requests=[
            Request(f"r{number}", {"number": number, "label": truth(number) if number < labelled else None})
            for number in range(count)
        ],
        inputs=lambda request: {"number": request.data["number"]},
        labels=("label",),
        score=as_today(answer_of, **{**some, **scorer}),
    )


def catalog(mini, big=truth):
    """Today's model, and one that costs a tenth of it."""
    usd = {"mini": MINI_USD, "big": BIG_USD}
    prices = {
        name: Price(input=0.0, output=0.0, call=one, source="a test", as_of=datetime.date.today()) for name, one in usd.items()
    }
    chats = {name: rule if isinstance(rule, RuleChat) else RuleChat(rule=rule) for name, rule in (("mini", mini), ("big", big))}
    return Catalog.from_chat_models(chats, prices=prices)


def differing(share, answer=wrong, salt=0):
    """A rule that gives another answer than the truth to this share of the questions."""
    return lambda number: answer(number) if differs(number, share, salt) else truth(number)


def failing(rule, fails):
    """A rule whose call fails on some numbers."""

    def ask(number):
        if fails(number):
            raise CallError("no answer", kind="malformed")
        return rule(number)

    return ask


def rows_of(path):
    """The rows of a store as they are kept."""
    with ObservationStore.open(path) as store:
        return store.observations()


def questions_of(path):
    """The requests that persons are asked about."""
    with opened(path) as store:
        units = {unit.unit_id: unit.request for unit in store.units.values()}
        return {units[row["unit_id"]] for row in store.rows.questions() if row["is_open"]}
