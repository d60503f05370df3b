"""A budget of several processes has one correction, made of what all of them count."""

import pytest

from vinelm.controller.fleet.joined.shared_corrections import SharedCorrections
from vinelm.controller.fleet.redis_link import RedisLink
from vinelm.controller.session.spend_control import EVERY, MEMORY, MOST, SpendControl
from vinelm.objective import Objective

OBJECTIVE = Objective(maximize="accuracy", max_cost_usd=1.0)


class Server:
    def __init__(self, link, objective=OBJECTIVE):
        self.link, self.control, self.corrections = link, SpendControl(objective), SharedCorrections()
        self.corrections.add(self.control)

    def serve(self, requests, spent_usd):
        for _ in range(requests):
            self.control.begin()
            self.control.planned(1.0)
            self.control.spent(spent_usd)

    def round(self):
        self.corrections.do(self.link)


@pytest.fixture
def link(redis_url, fleet_name):
    return RedisLink(redis_url, fleet_name)


def test_both_follow_one_factor_made_of_what_both_count(link):
    one, two = Server(link), Server(link)
    one.serve(EVERY // 2, 0.5)
    two.serve(EVERY // 2, 1.0)
    for server in (one, two, one):
        server.round()
    decay = (1 - 1 / MEMORY) ** (EVERY // 2)
    planned, spent = (EVERY // 2) * (1 + decay), (EVERY // 2) * (1.0 + 0.5 * decay)
    assert one.control.factor == pytest.approx((planned / spent) ** 0.5)
    assert two.control.factor == one.control.factor > 1.1
    assert one.control.begin().max_cost_usd == pytest.approx(one.control.factor, rel=0.02)


def test_nothing_is_counted_twice_and_objectives_are_apart(link):
    one, other = Server(link), Server(link, Objective(maximize="accuracy", max_cost_usd=2.0))
    one.serve(EVERY, 0.5)
    for _ in range(10):
        one.round()
        other.round()
    assert one.control.factor == pytest.approx(2.0**0.5)
    assert other.control.factor == 1.0


def test_a_newcomer_takes_the_factor_and_an_empty_redis_that_of_the_living(link):
    one = Server(link)
    for _ in range(20):
        one.serve(EVERY, 0.1)
        one.round()
    assert one.control.factor == MOST
    newcomer = Server(link)
    newcomer.round()
    assert newcomer.control.factor == MOST
    link._redis.delete(*link._redis.keys(link.prefix + "*"))
    newcomer.round()
    assert newcomer.control.factor == MOST


def test_alone_a_process_goes_on_from_the_last_factor(link):
    one = Server(link)
    one.serve(EVERY, 0.5)
    one.round()
    before = one.control.factor
    one.serve(EVERY, 0.5)
    assert one.control.factor == before  # others correct it
    one.corrections.go_alone(link)
    one.serve(EVERY, 0.5)
    assert one.control.factor > before
