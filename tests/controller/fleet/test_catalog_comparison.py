"""Processes of one fleet that were given different things: one line says what differs."""

import warnings

import pytest

from vinelm.controller.fleet.joined.fleet import CatalogComparison, difference
from vinelm.controller.fleet.live_invocations import LiveInvocations
from vinelm.controller.fleet.member import FleetMember
from vinelm.controller.fleet.neighbours import FleetReader
from vinelm.controller.fleet.redis_link import RedisLink

FACTS = {"model 'large'": {"engine": "east", "price": 1.0}, "limits of 'openai:east'": {"requests_per_min": 100}}


@pytest.fixture
def joined(redis_url, fleet_name):
    members = []

    def join(name, facts):
        member = FleetMember(RedisLink(redis_url, fleet_name), LiveInvocations(name))
        member.chores.append(CatalogComparison(member, facts))
        members.append(member)
        return member

    yield join
    for member in members:
        member.stop()
        member._link.close()


@pytest.mark.parametrize(
    ("theirs", "line"),
    [
        ({**FACTS, "model 'small'": {}}, "model 'small' is only there"),
        ({"model 'large'": FACTS["model 'large'"]}, "limits of 'openai:east' is only here"),
        ({**FACTS, "limits of 'openai:east'": {"requests_per_min": 50}}, "requests_per_min is 100 here and 50 there"),
        ({**FACTS, "limits of 'openai:east'": {}}, "requests_per_min is 100 here and not given there"),
    ],
)
def test_what_differs_is_said_once_in_one_line(joined, theirs, line):
    one, two = joined("p1", FACTS), joined("p2", theirs)
    two.round()
    one.round()
    with pytest.warns(UserWarning, match="this process and p2 of the fleet differ") as said:
        one.round()
    (text,) = (str(one.message) for one in said)
    assert line in text
    assert "each goes by its own" in text
    assert "\n" not in text
    for _ in range(3):
        assert one.round()


def test_equal_catalogs_are_no_matter(joined):
    one, two = joined("p1", FACTS), joined("p2", dict(reversed(FACTS.items())))
    for _ in range(3):
        assert two.round()
        assert one.round()


def test_a_monitor_knows_how_many_there_are(joined, redis_url, fleet_name):
    reader = FleetReader(RedisLink(redis_url, fleet_name))
    for number in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            joined(f"p{number}", {"model": {"engine": str(number % 2)}}).round()
    reader.view()
    assert reader.catalogs() == 2
    reader.close()


def test_a_catalog_that_redis_has_forgotten_is_shown_again(joined):
    one = joined("p1", FACTS)
    one.round()
    link = one._link
    key = f"{link.prefix}catalog:{one.catalog}"
    link._redis.delete(key)
    one._go_alone()  # as Redis was restarted
    one.round()
    assert link._redis.ttl(key) > 80_000


def test_equal_facts_have_no_difference():
    assert difference(FACTS, FACTS) == "nothing that can be shown"
