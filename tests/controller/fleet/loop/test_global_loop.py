"""The loop from the snapshots to what each process keeps in memory; and policies that do what they must not."""

import sys
import threading
import time

import numpy as np
import pytest

from vinelm.controller.fleet.built_in_policies import fleet_policy
from vinelm.controller.fleet.live_invocations import InvocationStart, LiveInvocations
from vinelm.controller.fleet.loop.global_loop import GlobalLoop
from vinelm.controller.fleet.loop.leadership import LOCK, ORDERS
from vinelm.controller.fleet.loop.order_bytes import local_orders, order_fields, own_field
from vinelm.controller.fleet.loop.standing_orders import CallStanding, StandingOrders
from vinelm.controller.fleet.member import FleetMember
from vinelm.controller.fleet.orders import Orders
from vinelm.controller.fleet.redis_link import RedisLink
from vinelm.controller.fleet.view import merge
from vinelm.errors import ConfigError, VineLMError


class Fleet:
    """Two processes with a few invocations, and a loop."""

    def __init__(self, url, name, policy=None, **loop):
        self.link = RedisLink(url, name)
        self.members, self.orders, self.changes = [], [], 0
        for process in ("p1", "p2"):
            live = LiveInvocations(process)
            live.groups = {"large-1": "large", "large-2": "large"}
            member = FleetMember(RedisLink(url, name), live)
            standing = StandingOrders(process, self.changed)
            member.chores.append(standing)
            self.members.append(member)
            self.orders.append(standing)
        for session in (1, 2, 3):
            self.members[session % 2].live.begin(
                InvocationStart(session, "acme", "write", 0, "large-1", 0.0, 30.0, 5.0 * session)
            )
        self.loop = GlobalLoop(RedisLink(url, name), policy or fleet_policy("slack"), **loop)

    def changed(self):
        self.changes += 1

    def rounds(self):
        for member in self.members:
            assert member.round()

    def close(self):
        for member in self.members:
            member.stop()
            member._link.close()
        self.loop.close()
        self.link.close()


@pytest.fixture
def fleet(redis_url, fleet_name):
    made = []

    def make(policy=None, **loop):
        made.append(Fleet(redis_url, fleet_name, policy, **loop))
        made[-1].rounds()
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_orders_reach_each_process_as_far_as_they_concern_it(fleet):
    def policy(view):
        return Orders(
            weights={"large-1": 0.5},
            sessions={1: 1.0, 2: 2.0},
            pins={2: "large-2", 3: "large-1"},
            tenants={"acme": 0.25},
            shares={"p1": 3.0},
        )

    made = fleet(policy)
    done = made.loop.round()
    assert (done.leads, done.version, done.rows, done.processes, done.problem) == (True, 1, 3, 2, "")
    made.rounds()
    one, two = made.orders  # p1 has session 2, p2 has 1 and 3
    assert one.current.weights == two.current.weights == {"large-1": 0.5}
    assert (one.current.priority(2, "acme", "write"), one.current.priority(1, "acme", "write")) == (2.25, 0.25)
    assert (two.current.priority(1, "acme", ""), two.current.priority(2, "", "")) == (1.25, 0.0)
    assert (one.current.pins.get(2), one.current.pins.get(3), two.current.pins.get(3)) == ("large-2", None, "large-1")
    assert (one.current.share, two.current.share) == (0.75, 0.25)
    assert made.changes == 2
    made.rounds()
    assert made.changes == 2  # nothing new


def test_a_new_version_replaces_all_of_the_last(fleet):
    said = [Orders(weights={"large-1": 0.5}, sessions={1: 1.0}), Orders(stages={"write": 3.0})]
    made = fleet(lambda view: said.pop(0))
    made.loop.round()
    made.rounds()
    made.loop.round()
    made.rounds()
    two = made.orders[1]
    assert (two.version, two.current.weights, two.current.priority(1, "", "write")) == (2, {}, 3.0)


def test_orders_are_forgotten_when_redis_has_none(fleet):
    made = fleet(lambda view: Orders(weights={"large-1": 0.0}))
    made.loop.round()
    made.rounds()
    assert made.orders[0].current.weights == {"large-1": 0.0}
    made.link._redis.delete(made.link.prefix + ORDERS)
    made.rounds()
    assert (made.orders[0].current.weights, made.orders[0].version) == ({}, 0)


def test_a_process_alone_keeps_its_orders_for_a_while(redis_url, fleet_name):
    now = [0.0]
    link = RedisLink(redis_url, fleet_name)
    standing = StandingOrders("p1", lambda: None, now=lambda: now[0])
    standing._use(local_orders(b'{"weights":{"east":0.5},"tenants":{},"stages":{}}', None))
    now[0] = 29.0
    standing.go_alone(link)
    assert standing.current.weights == {"east": 0.5}
    now[0] = 31.0
    standing.go_alone(link)
    assert standing.current.weights == {}
    link.close()


def test_a_call_whose_orders_fail_keeps_its_own_priority():
    class Broken:
        @property
        def current(self):
            raise RuntimeError

    assert float(CallStanding(Broken(), 1, "", "s", 3.0)) == 3.0


def test_orders_that_cannot_be_read_change_nothing(fleet):
    made = fleet(lambda view: Orders(weights={"large-1": 0.5}))
    made.loop.round()
    made.rounds()
    made.link._redis.hset(made.link.prefix + ORDERS, mapping={"version": 99, own_field("p1"): b"\x09"})
    with pytest.warns(
        UserWarning, match="not orders of this version of VineLM: .*: this process goes on with the orders before"
    ):
        made.members[0].round()
    made.rounds()
    assert made.orders[0].current.weights == {"large-1": 0.5}


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        (lambda view: 1 / 0, "the policy raised ZeroDivisionError: division by zero; the last good orders stay"),
        (lambda view: None, "orders refused: the policy returned a NoneType"),
        (
            lambda view: Orders(weights={"eats": 1.0}),
            "orders refused: weights: unknown engine 'eats': the fleet's engines are large-1",
        ),
        (lambda view: Orders(sessions={77: 1.0}), "orders refused: sessions: 1 session is not in the view, 77 for one"),
        (lambda view: Orders(stages={"write": np.nan}), "orders refused: stages of 'write' is nan"),
        (lambda view: Orders(weights={"large-1": -1}), "orders refused: weights of 'large-1' is -1"),
        (lambda view: sys.exit(3), "the policy raised SystemExit: 3"),
        (lambda view: view.session.fill(0), "the policy raised ValueError: assignment destination is read-only"),
    ],
)
def test_after_a_bad_round_the_last_good_orders_stay(fleet, policy, problem):
    rounds = iter([lambda view: Orders(weights={"large-1": 0.5}), policy])

    def one_after_the_other(view):
        return next(rounds)(view)

    made = fleet(one_after_the_other)
    made.loop.round()
    done = made.loop.round()
    assert problem in done.problem
    assert "\n" not in done.problem
    assert (done.leads, done.version) == (True, 1)
    made.rounds()
    assert made.orders[0].current.weights == {"large-1": 0.5}


def test_a_policy_that_overruns_is_not_waited_for(fleet):
    go_on, rounds = threading.Event(), []

    def policy(view):
        rounds.append(len(rounds))
        if len(rounds) == 2:
            go_on.wait(10)
        return Orders(stages={"write": float(len(rounds))})

    made = fleet(policy, period_s=0.2)
    made.loop.round()
    assert "the policy took more than 0.2 s: the last good orders stay" in made.loop.round().problem
    assert made.loop.round().problem == "the policy has not returned yet: the last good orders stay"
    assert len(rounds) == 2
    made.rounds()
    assert made.orders[0].current.priority(0, "", "write") == 1.0
    go_on.set()
    until = time.monotonic() + 5
    while made.loop.round().problem:
        assert time.monotonic() < until
    made.rounds()
    assert made.orders[0].current.priority(0, "", "write") == 3.0  # what came late was not used


def test_a_second_loop_waits_and_takes_over(fleet, redis_url, fleet_name):
    made = fleet()
    made.loop.round()
    second = GlobalLoop(RedisLink(redis_url, fleet_name), fleet_policy("balance"))
    waits = second.round()
    assert (waits.leads, waits.leader, waits.problem) == (False, made.loop.name, "")
    made.link._redis.delete(made.link.prefix + LOCK)  # the first was away for too long
    assert second.round().leads
    lost = made.loop.round()
    assert (lost.leads, lost.leader) == (False, second.name)
    second.close()
    assert made.loop.round().leads  # at once: the second has resigned


def test_who_is_replaced_within_a_round_is_refused(fleet, redis_url, fleet_name):
    second = GlobalLoop(RedisLink(redis_url, fleet_name), fleet_policy("balance"))

    def slow_policy(view):
        made.link._redis.delete(made.link.prefix + LOCK)
        second.round()
        return Orders(stages={"write": 9.0})

    made = fleet(slow_policy, period_s=5.0)
    done = made.loop.round()
    assert (done.leads, done.problem) == (False, "another loop leads by now: these orders were refused")
    made.rounds()
    assert made.orders[0].current.priority(0, "", "write") == 0.0
    second.close()


def test_without_processes_no_policy_is_asked(redis_url, fleet_name):
    loop = GlobalLoop(RedisLink(redis_url, fleet_name), lambda view: 1 / 0)
    done = loop.round()
    assert (done.leads, done.processes, done.problem) == (True, 0, "")
    loop.close()


def test_without_redis_the_loop_says_so_and_goes_on():
    loop = GlobalLoop(RedisLink("redis://127.0.0.1:1/0"), fleet_policy("balance"))
    done = loop.round()
    assert not done.leads
    assert done.problem.startswith("the fleet's Redis at ")
    loop.close()


def test_the_loop_ends_when_it_is_told(fleet):
    made, rounds = fleet(period_s=0.01), []
    thread = threading.Thread(target=made.loop.run, args=(rounds.append,))
    thread.start()
    while len(rounds) < 3:
        time.sleep(0.005)
    made.loop.stop()
    thread.join(5)
    assert not thread.is_alive()
    assert made.link.get(LOCK) is None


@pytest.mark.parametrize("period_s", [0.0, -1.0, float("nan"), 11.0])
def test_a_period_that_cannot_be(redis_url, period_s):
    with pytest.raises(ConfigError, match="period_s is"):
        GlobalLoop(RedisLink(redis_url), fleet_policy("balance"), period_s=period_s)


def test_bytes_give_back_the_orders_of_each_process():
    rng = np.random.default_rng(0)
    tables = [LiveInvocations(f"p{i}") for i in range(3)]
    for table in tables:
        for session in rng.integers(0, 40, 20).tolist():
            table.begin(InvocationStart(session, "", "write", 0, "east", 0.0))
    view = merge([(table.snapshot(), 0.0) for table in tables])
    orders = Orders(sessions={session: float(session) for session in range(0, 40, 2)}, pins={4: "east"})
    fields = order_fields(orders, view)
    for number, process in enumerate(view.processes):
        own = local_orders(fields["all"], fields[own_field(process)])
        mine = set(view.session[view.process == number].tolist())
        assert own.sessions == {session: float(session) for session in mine if session % 2 == 0}
        assert own.pins == ({4: "east"} if 4 in mine else {})
        assert own.share is None


@pytest.mark.parametrize("raw", [b"", b"\x02\x00\x00\x00{}", b"\x05\x00\x00\x00{nope", b"\xff\xff\xff\x7f"])
def test_damaged_bytes_are_refused(raw):
    with pytest.raises(VineLMError, match="not orders"):
        local_orders(b"{}", raw)
    with pytest.raises(VineLMError, match="not orders"):
        local_orders(b"[1]", None)
