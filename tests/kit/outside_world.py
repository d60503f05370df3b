"""Which tests open sockets, start processes or take long: `make test-fast` leaves them out.

`not_fast.txt` lists them by file or test function; what it lists gets the marker `outside` or `slow`. `make test-times` runs
all tests, watches them (`--watch-outside`) and writes that list and `slowest.md`. With `--stay-inside`, as in `make test-fast`,
a test that opens a socket or starts a process fails and says so.
"""

import os
import sys
from collections import defaultdict
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
LIST, SLOWEST = HERE / "not_fast.txt", HERE / "slowest.md"
SLOW_S = 0.8
"""Seconds of a test function, its setup included, by the clock or of a processor, above which it is slow."""
SHOWN = 40
SAID = {"socket": "opens a socket", "process": "starts a process"}
EVENTS = {
    **dict.fromkeys(("socket.bind", "socket.connect"), "socket"),
    **dict.fromkeys(("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"), "process"),
}
HEAD = """# Tests that `make test-fast` leaves out. `outside`: they open a socket or start a process; `slow`: they take more
# than 0.8 s. Written by `make test-times`. A line names a file or a test function, and may be added by hand.
"""
HOW = f"add `outside` and its name to tests/{LIST.name}, or have the list written by `make test-times`"


class WentOutsideError(Exception):
    """A test opened a socket or started a process where it must not."""


class Watch:
    """Notes what the running tests do, and refuses it if asked to.

    An audit hook cannot be removed: there is one for the whole process, and none for its children.
    """

    def __init__(self, *, refuses):
        self.seen, self.is_on = set(), False
        self._refuses, self._process = refuses, os.getpid()
        sys.addaudithook(self)

    def __call__(self, event, arguments):
        kind = EVENTS.get(event)
        if kind is not None and self.is_on and os.getpid() == self._process:
            self.seen.add(kind)
            if self._refuses:
                raise WentOutsideError(f"this test {SAID[kind]}: {HOW}")


class Watched:
    """Adds to the reports of each test what it did and the seconds of processor that it took."""

    def __init__(self, *, refuses):
        self.watch, self.refuses, self._mark = Watch(refuses=refuses), refuses, 0.0
        self._of_fixture = defaultdict(set)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        self.watch.seen.clear()
        self.watch.is_on, self._mark = True, processor_s()
        try:
            return (yield)
        finally:
            self.watch.is_on = False

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        before = set(self.watch.seen)
        self.watch.seen.clear()
        try:
            return (yield)
        finally:
            self._of_fixture[fixturedef.baseid, fixturedef.argname] |= self.watch.seen
            self.watch.seen |= before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self):
        found = yield
        if self.refuses and self.watch.seen:  # the application may have caught the error
            raise WentOutsideError(f"this test {' and '.join(SAID[kind] for kind in sorted(self.watch.seen))}: {HOW}")
        return found

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item):
        report = yield
        now = processor_s()
        report.user_properties = [*report.user_properties, ("processor_s", now - self._mark)]
        self._mark = now
        used = [one for definitions in item._fixtureinfo.name2fixturedefs.values() for one in definitions]
        if self.watch.seen or any(self._of_fixture.get((one.baseid, one.argname)) for one in used):
            report.user_properties.append(("outside", True))
        return report


def processor_s():
    """Seconds of this process and of the children that it has waited for."""
    return sum(os.times()[:4])


class Lists:
    """Collects the reports of all processes, and writes the lists at the end."""

    def __init__(self):
        self.outside, self.functions = set(), defaultdict(set)
        self.processor_s, self.wall_s = defaultdict(float), defaultdict(float)

    def pytest_runtest_logreport(self, report):
        function = report.nodeid.partition("[")[0]
        self.functions[function.partition("::")[0]].add(function)
        self.wall_s[report.nodeid] += report.duration
        for key, value in report.user_properties:
            if key == "outside":
                self.outside.add(function)
            elif key == "processor_s":
                self.processor_s[report.nodeid] += value

    def pytest_sessionfinish(self):
        self._keep_known()
        slow = (self._slow(self.processor_s) | self._slow(self.wall_s)) - self.outside
        lines = [*self._lines("outside", self.outside), *self._lines("slow", slow)]
        LIST.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
        slowest = sorted(self.processor_s, key=lambda name: -self.processor_s[name])[:SHOWN]
        rows = [f"| {self.wall_s[name]:.1f} | {self.processor_s[name]:.1f} | `{name}` |" for name in slowest]
        SLOWEST.write_text(slowest_page(rows), encoding="utf-8")

    def _slow(self, seconds):
        """The test functions that took longer with all their parameters."""
        by_function = defaultdict(float)
        for name, own in seconds.items():
            by_function[name.partition("[")[0]] += own
        return {name for name, own in by_function.items() if own > SLOW_S}

    def _keep_known(self):
        """Tests that are listed stay so: one may use a process that another test happened to start before it."""
        known = [name for name, marker in listed().items() if marker == "outside"]
        for own in self.functions.values():
            self.outside |= {one for one in own if one in known or one.partition("::")[0] in known}

    def _lines(self, marker, functions):
        """One line for each file all of whose functions are meant, else for each function."""
        for file, own in sorted(self.functions.items()):
            meant = own & functions
            yield from [f"{marker} {file}"] if meant == own else [f"{marker} {name}" for name in sorted(meant)]


def slowest_page(rows):
    """The page of the slowest tests."""
    head = "# The slowest tests\n\nBy seconds of a processor, setup included. Written by `make test-times`.\n\n"
    return head + "\n".join(["| clock | processor | test |", "| ---: | ---: | --- |", *rows]) + "\n"


def listed():
    """Marker by file or test function."""
    lines = LIST.read_text(encoding="utf-8").splitlines() if LIST.exists() else []
    return {name: marker for marker, _, name in (line.partition(" ") for line in lines) if marker not in ("#", "")}


def pytest_addoption(parser):
    group = parser.getgroup("what tests do outside of their process")
    group.addoption("--stay-inside", action="store_true", help="a test that opens a socket or starts a process fails")
    group.addoption("--watch-outside", action="store_true", help="write the lists of those tests and of the slowest ones")


def pytest_configure(config):
    refuses, watches = config.getoption("--stay-inside"), config.getoption("--watch-outside")
    is_worker = hasattr(config, "workerinput")
    if refuses or watches:
        config.pluginmanager.register(Watched(refuses=refuses), "watched tests")
    if watches and not is_worker:
        config.pluginmanager.register(Lists(), "lists of tests")


def pytest_ignore_collect(collection_path, config):
    """A file of which nothing would be run is not even imported."""
    if config.getoption("--stay-inside") and str(collection_path.relative_to(HERE.parent)) in listed():
        return True
    return None


def pytest_collection_modifyitems(items):
    known = listed()
    for item in items:
        function = item.nodeid.partition("[")[0]
        marker = known.get(function) or known.get(function.partition("::")[0])
        if marker:
            item.add_marker(marker)
