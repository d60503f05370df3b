"""Random episodes of reads, writes, faults, delays, cancels and resumes on declared tools, in virtual time.

All seconds are sums of powers of two, so that times are compared exactly.
"""

import asyncio
import random
from contextvars import copy_context
from dataclasses import dataclass, field

from langchain_core.tools import tool as plain_tool

from kit.catalogs import make_catalog
from vinelm.adapters.langgraph import GraphAdapter
from vinelm.adapters.tools.declaring import declared_in
from vinelm.adapters.tools.read_ahead import Ahead
from vinelm.adapters.tools.shadow import IS_AHEAD
from vinelm.backends.resolver import ModelResolver
from vinelm.errors import CallRefused
from vinelm.money import SpendGuard
from vinelm.policies import ForcedPolicy
from vinelm.rows.observation import Usage
from vinelm.template import Loop, Stage, Template
from vinelm.tools.speculation import Speculation, ToolCandidate

TEMPLATE = Template((Loop((Stage("model", ("m0",)),), times=9),))
ITEMS = "abc"


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop in which waiting takes no time: it goes on at the moment of the next timer."""

    def __init__(self):
        super().__init__()
        self.now_s = 0.0

    def time(self):
        return self.now_s

    def _run_once(self):
        if not self._ready and self._scheduled:
            self.now_s = max(self.now_s, self._scheduled[0]._when)
        super()._run_once()


def in_virtual_time(main):
    """The result of a coroutine function that is given the loop."""
    loop = VirtualTimeLoop()
    try:
        return loop.run_until_complete(main(loop))
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


class LoopClock:
    def __init__(self, loop):
        self.loop = loop

    def now(self):
        return self.loop.time()

    def sleep(self, seconds):
        raise AssertionError("nobody blocks the loop")


class Answerless:
    """No model is called here: the episodes say themselves how long one thinks."""

    is_simulated = is_virtual_time = True


MODELS = ModelResolver(make_catalog(1), {"test": Answerless()})


@dataclass
class World:
    """What the tools read and write, and every execution: (ahead, tool, item, seconds)."""

    loop: object
    seconds: dict
    faults: set
    transient: float
    seed: int
    version: dict = field(default_factory=lambda: dict.fromkeys(ITEMS, 0))
    writes: list = field(default_factory=list)
    executions: list = field(default_factory=list)

    async def read(self, tool, item):
        ahead = IS_AHEAD.get()
        self.executions.append((ahead, tool, item, self.loop.time()))
        lucky = random.Random(f"{self.seed}{tool}{item}{len(self.executions)}")
        await asyncio.sleep(self.seconds[tool, item] / 2)
        found = f"{tool} {item}: {self.version[item] if item else sorted(self.version.items())}"
        await asyncio.sleep(self.seconds[tool, item] / 2)
        if ahead and lucky.random() < self.transient:
            raise ConnectionError("only ahead")
        if (tool, item) in self.faults and self.version.get(item, 0) % 2 == 0:
            raise ValueError(f"no {item}")
        return found

    async def write(self, tool, item):
        await asyncio.sleep(0.25)
        self.version[item] += 1
        self.writes.append((tool, item, self.version[item]))
        await asyncio.sleep(0.25)
        return f"{tool} {item}: done"


WORLD = []
"""That of the episode under way."""


@plain_tool
async def get(item: str) -> str:
    """Read an item."""
    return await WORLD[0].read("get", item)


@plain_tool
async def listing() -> str:
    """Read all."""
    return await WORLD[0].read("listing", "")


@plain_tool
async def put(item: str) -> str:
    """Write an item."""
    return await WORLD[0].write("put", item)


@plain_tool
async def poke(item: str) -> str:
    """Write an item; nobody declares it."""
    return await WORLD[0].write("poke", item)


def tools_of(vine, cost_usd, ttl_s):
    made = [vine.tool(get, read_only=True, cost_usd=cost_usd, ttl_s=ttl_s), vine.tool(listing, read_only=True)]
    return {one.name: one for one in (*made, vine.tool(put, writes="session"), poke)}


@dataclass
class Outcome:
    outputs: list
    state: dict
    writes: list
    starts: list
    ends_s: float
    guards: list
    executions: list
    counts: dict
    highest: list


async def episode(loop, seed, *, speculates, faults=True, cost_usd=0.0, cap_usd=None, record=None):
    """One episode of ``seed``: steps of thinking, guesses, calls, with or without anything started ahead."""
    draw = random.Random(seed)
    seconds = {("get", item): draw.choice((0.125, 0.5, 2.0)) for item in ITEMS} | {("listing", ""): draw.choice((0.25, 1.0))}
    broken = {("get", item) for item in ITEMS if draw.random() < 0.2} if faults else set()
    world = World(loop, seconds, broken, draw.choice((0.0, 0.3)) if faults else 0.0, seed)
    vine = GraphAdapter(MODELS, template=TEMPLATE, enforces=True)
    WORLD[:] = [world]
    tools = tools_of(vine, cost_usd, draw.choice((None, 1.0)))
    known = {name: one for name, tool in tools.items() if (one := declared_in(vine.tools, tool)) is not None}
    settings = Speculation(waste_usd=draw.choice((0.0, 0.02, 1.0)), at_once=draw.randint(1, 4))
    outputs, starts, guards, highest = [], [], [], []

    class Guesses:
        def candidates(self, history):
            return self.next

    guesses = vine.tools.candidates = Guesses()
    if record is not None:
        vine.observe(record)

    def new_run():
        policy = ForcedPolicy(TEMPLATE, ("m0",) * 9, clock=LoopClock(loop))
        policy.guard = None if cap_usd is None else SpendGuard(cap_usd)
        guards.append(policy.guard)
        return vine.request(policy=policy, speculate=settings if speculates else None)

    async def ask(name, arguments):
        before, asked_s = len(world.executions), loop.time()
        try:
            output = await tools[name].ainvoke(arguments)
        except (ValueError, CallRefused) as error:
            output = type(error).__name__ + str(error)[:5]
        own = [
            one for one in world.executions[before:] if not one[0] and one[1] == name and one[2] == arguments.get("item", "")
        ]
        starts.append(own[0][3] if own else asked_s)
        if guards[-1] is not None:
            highest.append(guards[-1].spent_usd + guards[-1].reserved_usd)
        return output

    steps = [draw.randrange(1 << 30) for _ in range(draw.randint(2, 7))]
    run = new_run()
    run.__enter__()
    for step in steps:
        draw = random.Random(step)
        kind = draw.choices(("read", "parallel", "put", "poke", "resume", "retry"), (5, 2, 2, 1, 1, 1))[0]
        calls = [draw.choice([("get", {"item": item}) for item in ITEMS] + [("listing", {})]) for _ in range(2)]
        right = [(*one, draw.random()) for one in calls]
        wrong = [("get", {"item": draw.choice(ITEMS)}, draw.random()), ("get", {"thing": 1}, 0.9), ("put", {"item": "a"}, 1.0)]
        guesses.next = draw.sample(right + wrong, draw.randint(0, 5))
        memory = vine.reads_finder.here()
        memory.speculate([], lambda found, settings, **_: [ToolCandidate(*one) for one in found], known)
        if guards[-1] is not None:
            pay(guards[-1], draw)
        await asyncio.sleep(draw.choice((0.0, 0.25, 1.0, 3.0)) / 2)
        if draw.random() < 0.5:
            Ahead(memory, known, copy_context()).asked_early(*calls[0])
        await asyncio.sleep(draw.choice((0.0, 0.25, 1.0)) / 2)
        if kind == "resume":  # abandoned here; what follows is another run of the request
            run.__exit__(None, None, None)
            run = new_run()
            run.__enter__()
        if kind == "retry":
            vine.reads_finder.here().retried(("task", step))
        if kind == "parallel":
            outputs += await asyncio.gather(*(ask(*one) for one in calls))
        elif kind in ("put", "poke"):
            outputs.append(await ask(kind, {"item": draw.choice(ITEMS)}))
        else:
            outputs.append(await ask(*calls[0]))
    run.__exit__(None, None, None)
    ends_s = loop.time()
    await asyncio.sleep(10.0)  # what still runs ahead ends, and pays
    return Outcome(
        outputs, world.version, world.writes, starts, ends_s, guards, world.executions, dict(vine.tools.counts), highest
    )


def pay(guard, draw):
    """A model's call, as far as the cap allows it."""
    try:
        permit = guard.authorize(0.01)
    except CallRefused:
        return
    permit.settle(Usage(model="m0", cost_usd=draw.choice((0.002, 0.01)), latency_s=0.0))


def run_episode(seed, **how):
    """The outcome of an episode."""
    return in_virtual_time(lambda loop: episode(loop, seed, **how))
