"""Processes that publish and read each other through a real Redis."""

import sys

import pytest

from vinelm.controller.fleet.live_invocations import InvocationStart, LiveInvocations
from vinelm.controller.fleet.member import ALONE, FleetMember
from vinelm.controller.fleet.neighbours import GONE_AFTER_S, FleetReader
from vinelm.controller.fleet.redis_link import RedisLink
from vinelm.errors import ConfigError, FleetUnreachable, MissingExtra


class Seconds:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def invocation(engine="east", session=1):
    return InvocationStart(session, "acme", "write", 3, engine, 0.0)


def member_of(url, fleet_name, process, clock):
    return FleetMember(RedisLink(url, fleet_name), LiveInvocations(process, clock), now=clock)


@pytest.fixture
def clock():
    return Seconds()


def test_each_process_counts_the_others_and_not_itself(redis_url, fleet_name, clock):
    one, two, three = (member_of(redis_url, fleet_name, name, clock) for name in ("p1", "p2", "p3"))
    for engine in ("east", "east", "west"):
        two.live.begin(invocation(engine))
    three.live.begin(invocation("west"))
    one.live.begin(invocation("east"))
    for member in (one, two, three, one):
        assert member.round()
    assert one.others == {"east": 2, "west": 2}
    assert three.others == {"east": 3, "west": 1}
    assert (one.processes, one.is_alone, one.note) == (3, False, "")


def test_the_whole_view_has_a_row_for_each_invocation(redis_url, fleet_name, clock):
    one, two = member_of(redis_url, fleet_name, "p1", clock), member_of(redis_url, fleet_name, "p2", clock)
    one.live.begin(invocation("east", session=11))
    slot = two.live.begin(invocation("west", session=22))
    one.round()
    two.round()
    reader = FleetReader(RedisLink(redis_url, fleet_name), clock)
    view = reader.view()
    assert (view.session.tolist(), view.processes) == ([11, 22], ("p1", "p2"))
    clock.now += 1.0
    assert reader.view().elapsed_s.tolist() == [1.0, 1.0]  # unchanged snapshots grow older
    two.live.end(slot)
    two.round()
    assert reader.view().session.tolist() == [11]


def test_a_dead_process_is_forgotten_although_its_key_is_still_there(redis_url, fleet_name, clock):
    one, two = member_of(redis_url, fleet_name, "p1", clock), member_of(redis_url, fleet_name, "p2", clock)
    two.live.begin(invocation())
    two.round()
    one.round()
    reader = FleetReader(RedisLink(redis_url, fleet_name), clock)
    assert (one.others, len(reader.view())) == ({"east": 1}, 1)
    clock.now += GONE_AFTER_S
    one.round()
    assert (one.others, one.processes) == ({}, 1)
    assert len(reader.view()) == 0


def test_an_expired_process_leaves_the_list(redis_url, fleet_name, clock):
    link = RedisLink(redis_url, fleet_name)
    link.publish("p1", 1, b'{"live":{}}', b"", ttl_s=0.001)
    link.publish("p2", 1, b'{"live":{}}', b"", ttl_s=100)
    while "p1" in link.loads():
        pass
    assert set(link.loads()) == {"p2"}


def test_what_ends_in_good_order_is_gone_at_once(redis_url, fleet_name, clock):
    one, two = member_of(redis_url, fleet_name, "p1", clock), member_of(redis_url, fleet_name, "p2", clock)
    two.live.begin(invocation())
    two.start()
    while not two.rounds:
        pass
    one.round()
    assert one.others == {"east": 1}
    two.stop()
    one.round()
    assert (one.others, one.processes) == ({}, 1)


def test_without_redis_a_process_is_alone_until_it_is_back(redis_server, fleet_name, clock):
    one, two = member_of(redis_server.url, fleet_name, "p1", clock), member_of(redis_server.url, fleet_name, "p2", clock)
    two.live.begin(invocation())
    two.round()
    one.round()
    redis_server.kill()
    assert not one.round()
    assert (one.is_alone, one.others, one.note) == (True, {"east": 1}, ALONE)  # what was known is not old yet
    clock.now += GONE_AFTER_S
    one.round()
    assert one.others == {}
    with pytest.raises(FleetUnreachable):
        RedisLink(redis_server.url, fleet_name).ping()
    redis_server.start()  # empty
    two.round()
    assert one.round()
    assert (one.is_alone, one.others, one.note) == (False, {"east": 1}, "")


def test_a_defect_ends_neither_the_thread_nor_the_requests(redis_url, fleet_name, clock):
    class Broken:
        def do(self, link):
            raise TypeError("a defect")

        def go_alone(self, link):
            pass

        def close(self, link):
            pass

    one = member_of(redis_url, fleet_name, "p1", clock)
    one.chores.append(Broken())
    one.start()
    while not one.failure:
        pass
    assert one.is_alone
    assert "the fleet failed (TypeError)" in one.note
    one.chores.clear()
    one.wake()
    while one.is_alone:
        pass
    assert one.note == ""
    one.stop()


def test_what_others_wrote_by_mistake_harms_nobody(redis_url, fleet_name, clock):
    one, link = member_of(redis_url, fleet_name, "p1", clock), RedisLink(redis_url, fleet_name)
    link.publish("odd", 1, b"not json", b"not rows", ttl_s=100)
    link.publish("odd2", 1, b'{"live":{"east":["x"]}}', b"", ttl_s=100)
    assert one.round()
    assert one.others == {}
    link.publish("odd", 2, b'{"live":{}}', b"not rows", ttl_s=100)
    reader = FleetReader(link, clock)
    assert len(reader.view()) == 0
    assert reader.damaged == {"odd"}


def test_without_the_client_the_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(MissingExtra, match=r"pip install 'vinelm\[fleet\]'"):
        RedisLink("redis://localhost")


@pytest.mark.parametrize(
    ("url", "name", "text"),
    [
        ("http://x", "default", "no Redis URL"),
        ("localhost:6379", "default", "no Redis URL"),
        ("redis://localhost:port", "default", "no Redis URL"),
        ("redis://localhost", "two words", "fleet's name"),
    ],
)
def test_a_wrong_address_is_one_line(url, name, text):
    pytest.importorskip("redis")
    with pytest.raises(ConfigError, match=text) as failed:
        RedisLink(url, name)
    assert "\n" not in str(failed.value)
