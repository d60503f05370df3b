"""What may be started ahead, whom a write concerns, and who is woken: the memory of a run, without an agent around it."""

import asyncio
import threading
from types import SimpleNamespace

import pytest
from kit.catalogs import make_catalog
from kit.tool_episodes import TEMPLATE
from langchain_core.tools import StructuredTool, tool

from vinelm import Speculation, VineLM
from vinelm.adapters.tools.declaring import declared_in
from vinelm.adapters.tools.read_ahead import _plain
from vinelm.tools.speculation import ToolCandidate

TEA, MILK = {"item": "tea"}, {"item": "milk"}


@pytest.fixture
def app():
    """A read-only tool, one that writes, and what was looked up."""
    vine, log = VineLM(make_catalog(1), template=TEMPLATE), []

    def look(item: str) -> str:
        """Look an item up."""
        log.append(item)
        return f"{item} is fine"

    def book(item: str) -> str:
        """Book an item."""
        return "booked"

    look, book = vine.tool(look, read_only=True, cost_usd=0.25), vine.tool(book, writes="session")
    return SimpleNamespace(vine=vine, log=log, look=look, book=book)


def guess(app, *found):
    app.vine.adapter.tools.candidates = SimpleNamespace(candidates=lambda history: found)


def tools_of(app):
    return {one.name: handle(app, one) for one in (app.look, app.book)}


def handle(app, tool):
    return declared_in(app.vine.adapter.tools, tool)


def memory_of(app):
    return app.vine.adapter.reads_finder.here()


def test_places_go_to_guesses_that_can_start(app):
    """Not to tools that write, and not to reads that are there already."""
    guess(app, ("book", TEA, 0.99), ("book", MILK, 0.99), ("look", TEA, 0.9), ("look", MILK, 0.8))
    with app.vine.request(speculate=Speculation(waste_usd=1.0, at_once=1)):
        memory = memory_of(app)
        for _ in range(2):
            choose = lambda found, settings, *, wasted_usd, running: found[: settings.at_once - running]  # noqa: E731
            memory.speculate([], choose, tools_of(app))
            while memory._running():
                pass
    assert app.log == ["tea", "milk"]


def test_a_tool_that_failed_ahead_is_not_called_ahead_again(app):
    calls = []

    def bad(item: str) -> str:
        """Look an item up."""
        calls.append(item)
        raise ValueError(item)

    bad = handle(app, kept := app.vine.tool(bad, read_only=True))
    with app.vine.request(speculate=Speculation()):
        memory = memory_of(app)
        assert memory.start(bad, TEA, "speculated", 1.0)
        while memory._running():
            pass
        assert not memory.start(bad, MILK, "speculated", 1.0)
    assert calls == ["tea"]
    assert kept.name == "bad"


def test_a_write_of_all_runs_concerns_a_run_that_begins_while_it_lasts(app):
    begun, goes_on, started = threading.Event(), threading.Event(), []

    def change(item: str) -> str:
        """Change an item for everybody."""
        begun.set()
        goes_on.wait(5)
        return "changed"

    changing = app.vine.tool(change, writes="all")

    def write():
        with app.vine.request(speculate=Speculation()):
            changing.invoke(TEA)

    thread = threading.Thread(target=write)
    thread.start()
    begun.wait(5)
    with app.vine.request(speculate=Speculation()):
        started.append(memory_of(app).start(handle(app, app.look), TEA, "speculated", 1.0))
        goes_on.set()
        thread.join(5)
        started.append(memory_of(app).start(handle(app, app.look), TEA, "speculated", 1.0))
    assert started == [False, True]


def test_an_undeclared_write_inside_a_declared_tool_concerns_the_run_that_begins_in_it(app):
    store = {"tea": 0}

    def seen(item: str) -> int:
        """Look an item up."""
        return store[item]

    @tool
    def poke(item: str) -> str:
        """Change an item."""
        store[item] += 1
        return "poked"

    look = app.vine.tool(seen, read_only=True)

    def delegate(item: str) -> int:
        """Let another agent do it."""
        with app.vine.request(speculate=Speculation()):
            memory = memory_of(app)
            assert memory.start(handle(app, look), TEA, "speculated", 1.0)
            while memory._running():
                pass
            poke.invoke(TEA)
            return look.invoke(TEA)

    outer = app.vine.tool(delegate, writes="session")
    with app.vine.request(speculate=Speculation()):
        assert outer.invoke(TEA) == 1


def test_a_thread_that_has_joined_a_task_is_woken_when_the_task_is_cancelled(app):
    """The call is then an ordinary one."""

    async def slow(item: str) -> str:
        """Look an item up."""
        await asyncio.sleep(60)

    both = app.vine.tool(
        StructuredTool.from_function(lambda item: "sync", slow, name="both", description="Both."), read_only=True
    )

    async def main():
        with app.vine.request(speculate=Speculation()):
            memory = memory_of(app)
            assert memory.start(handle(app, both), TEA, "speculated", 1.0)
            (read,) = memory._reads.values()
            joined = asyncio.create_task(asyncio.to_thread(both.invoke, TEA))
            while memory._reads:
                await asyncio.sleep(0.001)
            read.shadow.cancel()
            return await asyncio.wait_for(joined, 5)

    assert asyncio.run(main()) == "sync"


def test_a_candidate_has_the_dollars_of_its_tool(app):
    guess(app, ("look", TEA, 0.9))
    seen = []
    with app.vine.request(speculate=Speculation()):
        memory_of(app).speculate([], lambda found, settings, **_: seen.extend(found) or [], tools_of(app))
    assert seen == [ToolCandidate("look", TEA, 0.9, 0.25)]


def test_a_result_whose_own_code_fails_is_recorded_by_its_type():
    class Result:
        @property
        def content(self):
            raise ZeroDivisionError

        def __str__(self):
            raise ZeroDivisionError

    assert _plain(Result()) == "Result"
