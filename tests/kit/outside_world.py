"""`--stay-inside`, as in `make test-fast`: tests that open no socket, start no process and are quick.

Nobody lists them. The interpreter tells of each socket and process (an audit hook), and the test that wants one is skipped.
Each run notes in pytest's cache which tests took long, and `--stay-inside` leaves those out the next time. `--left-out` runs
just what the last `--stay-inside` skipped or left out: both together run each test once.
"""

import os
import sys
from collections import defaultdict
from pathlib import Path

import pytest

SLOWEST = Path(__file__).parents[1] / "slowest.md"
LEFT_OUT, SLOW = "tests/left out", "tests/slow"  # keys of the cache; each holds ids of tests
SLOW_S = 1.0
"""Seconds of the clock, setup included, above which a test is slow."""
SHOWN = 40
EVENTS = {
    **dict.fromkeys(("socket.bind", "socket.connect"), "opens a socket"),
    **dict.fromkeys(("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"), "starts a process"),
}


class Inside:
    """Skips the tests that leave their process, and leaves out those that were slow in an earlier run.

    An audit hook cannot be removed: there is one for the whole process, and none for its children.
    """

    def __init__(self):
        self.seen, self._is_on, self._process = set(), False, os.getpid()
        self._of_fixture = defaultdict(set)
        sys.addaudithook(self._hook)

    def _hook(self, event, arguments):
        said = EVENTS.get(event)
        if said is not None and self._is_on and os.getpid() == self._process:
            self.seen.add(said)
            pytest.skip(said)  # no `Exception`: what is tested does not catch it

    def pytest_collection_modifyitems(self, config, items):
        slow = noted(config, SLOW)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in slow])
        items[:] = [item for item in items if item.nodeid not in slow]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        self.seen.clear()
        self._is_on = True
        try:
            return (yield)
        finally:
            self._is_on = False

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        """What a fixture of many tests wanted holds for all of them, though it is set up once."""
        before = set(self.seen)
        self.seen.clear()
        try:
            return (yield)
        finally:
            self._of_fixture[fixturedef.baseid, fixturedef.argname] |= self.seen
            self.seen |= before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item):
        """Where another thread wanted it, or somebody caught the refusal, the test went on without: that is no result."""
        report = yield
        used = [one for definitions in item._fixtureinfo.name2fixturedefs.values() for one in definitions]
        seen = self.seen.union(*(self._of_fixture.get((one.baseid, one.argname), ()) for one in used))
        if seen:
            report.user_properties = [*report.user_properties, ("outside", True)]
            if report.when == "teardown":
                report.outcome, report.longrepr = "passed", None
            elif report.when == "call" or report.failed:
                report.outcome, report.longrepr = "skipped", (__file__, 1, f"Skipped: {' and '.join(sorted(seen))}")
        return report


class LeftOut:
    """Runs what the last `--stay-inside` skipped or left out, and does not even import the other files."""

    def __init__(self, config):
        self._ids = noted(config, LEFT_OUT)
        self._files = {config.rootpath / name.partition("::")[0] for name in self._ids}

    def pytest_ignore_collect(self, collection_path):
        return True if collection_path.suffix == ".py" and collection_path not in self._files else None

    def pytest_collection_modifyitems(self, config, items):
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in self._ids])
        items[:] = [item for item in items if item.nodeid in self._ids]


class ProcessorTime:
    """Adds to the reports of each test the seconds of processor that it took, with the children that it waited for."""

    def __init__(self):
        self._mark = sum(os.times()[:4])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self):
        report = yield
        now = sum(os.times()[:4])
        report.user_properties = [*report.user_properties, ("processor_s", now - self._mark)]
        self._mark = now
        return report


class Notes:
    """Collects the reports of all processes, and notes at the end what later runs go by."""

    def __init__(self, config):
        self.config, self.ran, self.outside = config, set(), set()
        self.processor_s, self.wall_s = defaultdict(float), defaultdict(float)

    def pytest_runtest_logreport(self, report):
        self.ran.add(report.nodeid)
        self.wall_s[report.nodeid] += report.duration
        for key, value in report.user_properties:
            if key == "outside":
                self.outside.add(report.nodeid)
            elif key == "processor_s":
                self.processor_s[report.nodeid] += value

    def pytest_sessionfinish(self):
        known = noted(self.config, SLOW)
        slow = {name for name, own in self.wall_s.items() if own > SLOW_S} - self.outside
        self.config.cache.set(SLOW, sorted(known - self.ran | slow))
        if self.config.getoption("stay_inside"):
            self.config.cache.set(LEFT_OUT, sorted(known - self.ran | self.outside))
        if self.config.getoption("times"):
            slowest = sorted(self.processor_s, key=lambda name: -self.processor_s[name])[:SHOWN]
            rows = [f"| {self.wall_s[name]:.1f} | {self.processor_s[name]:.1f} | `{name}` |" for name in slowest]
            SLOWEST.write_text(slowest_page(rows), encoding="utf-8")


def noted(config, key):
    """Ids of tests that earlier runs noted."""
    return set(config.cache.get(key, []))


def slowest_page(rows):
    """The page of the slowest tests."""
    head = "# The slowest tests\n\nBy seconds of a processor, setup included. Written by `make test-times`.\n\n"
    return head + "\n".join(["| clock | processor | test |", "| ---: | ---: | --- |", *rows]) + "\n"


def pytest_addoption(parser):
    group = parser.getgroup("what tests do outside of their process")
    group.addoption("--stay-inside", action="store_true", help="skip tests that open a socket, start a process or were slow")
    group.addoption("--left-out", action="store_true", help="run only those that --stay-inside skipped or left out")
    group.addoption("--times", action="store_true", help="write the page of the slowest tests")


def pytest_configure(config):
    if config.getoption("stay_inside"):
        config.pluginmanager.register(Inside(), "stay inside")
    if config.getoption("left_out"):
        config.pluginmanager.register(LeftOut(config), "left out")
    if config.getoption("times"):
        config.pluginmanager.register(ProcessorTime(), "processor time")
    if not hasattr(config, "workerinput") and hasattr(config, "cache"):
        config.pluginmanager.register(Notes(config), "notes")
