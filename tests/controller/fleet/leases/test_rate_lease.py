"""The limits of an engine hold over all processes together, and each gets its part."""

import shutil
from contextlib import closing

import pytest
from kit.worlds.shared_rates import World
from redis_for_bench import OwnRedis

from vinelm.controller.fleet.joined.fleet import Fleet
from vinelm.controller.fleet.leases.rate_lease import ALONE_AFTER_S, GRACE_MS, RECLAIM_AFTER_MS
from vinelm.controller.fleet.redis_link import RedisLink
from vinelm.errors import CallError, ConfigError

GRACE_S, RECLAIM_S = GRACE_MS / 1000, RECLAIM_AFTER_MS / 1000


@pytest.fixture
def world(redis_url, fleet_name):
    return World(redis_url, fleet_name, requests=12)


def waiting(worker):
    return len(worker.line)


def test_one_process_alone_may_use_the_whole_limit(world):
    one = world.worker()
    for _ in range(30):
        one.call()
    world.run(GRACE_S + 3)
    assert world.most_in_a_minute() == (12, 0)
    world.run(61)
    assert (world.most_in_a_minute(), waiting(one)) == ((12, 0), 6)  # what was used is used again after its minute


def test_processes_together_keep_the_limit_and_each_gets_its_part(world):
    workers = [world.worker() for _ in range(3)]
    for worker in workers:
        for _ in range(40):
            worker.call()
    world.run(190)
    assert world.most_in_a_minute()[0] == 12
    served = [40 - waiting(worker) for worker in workers]
    assert sum(served) >= 12 * 3
    assert min(served) >= 8


def test_a_newcomer_gets_its_part_of_what_others_use_to_the_full(world):
    first = world.worker()
    for _ in range(100):
        first.call()
    world.run(70)
    second = world.worker()
    for _ in range(100):
        second.call()
    world.run(180)
    assert world.most_in_a_minute()[0] == 12
    assert 100 - waiting(second) >= 10


def test_what_a_dead_process_held_is_free_a_minute_later_and_not_before(world):
    first = world.worker()
    for _ in range(12):
        first.call()
    world.run(GRACE_S + 3)
    assert waiting(first) == 0
    world.kill(first)
    second = world.worker()
    second.call()
    world.run(RECLAIM_S - 1)
    assert waiting(second) == 1
    world.run(3)
    assert waiting(second) == 0
    assert world.most_in_a_minute()[0] <= 12


def test_a_redis_that_forgot_grants_nothing_while_calls_of_the_dead_may_count(world):
    first, second = world.worker(), world.worker()
    for _ in range(11):
        first.call()
    second.call()
    world.run(GRACE_S + 5)
    assert waiting(first) + waiting(second) == 0
    world.kill(first)
    world.flush()
    for _ in range(12):
        second.call()
    world.run(30)
    assert world.most_in_a_minute()[0] <= 12
    world.run(120)
    assert waiting(second) == 0
    assert world.most_in_a_minute()[0] <= 12


def test_without_redis_each_goes_on_within_its_share(world):
    workers = [world.worker(), world.worker()]
    for worker in workers:
        for _ in range(60):
            worker.call()
    world.run(30)
    before = len(world.started)
    world.is_up = False
    world.run(120)
    assert world.most_in_a_minute()[0] <= 12
    assert len(world.started) >= before + 22  # both go on
    world.is_up = True
    world.run(60)
    assert world.most_in_a_minute()[0] <= 12


def test_a_process_that_loses_redis_before_it_has_a_share_refuses_calls_and_does_not_hang(world):
    """Others may hold all of the limit, and nobody says for how long: a call that waits would wait for ever."""
    one = world.worker()
    world.run(1)  # an empty Redis grants nothing yet
    world.is_up = False
    turn = one.share.line_up(0)
    world.run(ALONE_AFTER_S - 1)
    assert turn.pause_s() > 0
    world.run(2)
    with (
        turn,
        pytest.raises(CallError, match=r"Redis does not answer, and this process holds too small a share.*'east'") as refused,
    ):
        turn.pause_s()
    assert refused.value.kind == "rate_limit"
    world.is_up = True
    world.run(3)
    one.call()
    world.run(1)
    assert len(world.started) == 1


def test_a_process_that_never_reached_redis_has_the_limits_of_the_catalog(world):
    world.is_up = False
    one = world.worker()
    for _ in range(20):
        one.call()
    world.run(ALONE_AFTER_S - 1)
    assert not world.started  # others may hold all of it
    world.run(2)
    assert world.most_in_a_minute()[0] == 12


@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000])
def test_a_step_of_the_servers_clock_frees_nothing(world, step_ms):
    first, second = world.worker(), world.worker()
    for _ in range(12):
        first.call()
    world.run(GRACE_S + 5)
    world.kill(first)
    second.call()
    world.wall_offset_ms = step_ms
    world.run(50)
    assert world.most_in_a_minute()[0] <= 12
    world.run(30)
    assert waiting(second) == 0


def test_a_call_with_many_tokens_is_served_although_others_are_busy(redis_url, fleet_name):
    world = World(redis_url, fleet_name, tokens=1000)
    small, large = world.worker(), world.worker()
    for _ in range(400):
        small.call(20)
    world.run(30)
    large.call(900)  # more than its half
    large.call(5000)  # more than a minute allows: starts in an empty window
    world.run(90)
    assert waiting(large) <= 1
    world.run(90)
    assert waiting(large) == 0
    world.started = [(at, min(tokens, 1000)) for at, tokens in world.started]
    assert world.most_in_a_minute()[1] <= 1000
    before = waiting(small)
    world.run(70)
    assert waiting(small) < before


def test_a_slice_is_a_half_of_the_rest_by_process(redis_url, fleet_name):
    world = World(redis_url, fleet_name, requests=1000)
    first, second = world.worker(), world.worker()
    world.run(GRACE_S + 1)
    first.call()
    world.run(0.5)  # the call asks, and the round after brings
    assert first.share.demand().held.requests == 1000 // 4
    second.call()
    world.run(0.5)
    assert second.share.demand().held.requests == 750 // 4


def test_orders_say_what_part_of_a_limit_a_process_may_count_on(world):
    workers = [world.worker() for _ in range(2)]
    workers[0].part, workers[1].part = 0.75, 0.25
    for worker in workers:
        for _ in range(60):
            worker.call()
    world.run(250)
    assert world.most_in_a_minute()[0] == 12
    large, small = (60 - waiting(worker) for worker in workers)
    assert large + small >= 12 * 4
    assert large > 2 * small > 0


@pytest.mark.parametrize("parts", [(0.9, 0.1), (1.0, 0.001)])
def test_a_call_larger_than_the_part_of_its_process_is_served_too(redis_url, fleet_name, parts):
    world = World(redis_url, fleet_name, tokens=1000)
    busy, other = world.worker(), world.worker()
    busy.part, other.part = parts
    for _ in range(200):
        busy.call(50)
    world.run(GRACE_S + 5)
    other.call(600)
    world.run(180)
    assert world.most_in_a_minute()[1] <= 1000
    assert waiting(other) == 0
    assert waiting(busy) < 200 - 20


@pytest.mark.parametrize("key", ["rates:east", "rates:clock"])
def test_a_lost_key_starts_empty_and_not_full(world, key):
    """What a dead process has used in the last minute counts, although no living one knows of it."""
    first, second = world.worker(), world.worker()
    for _ in range(12):
        first.call()
    world.run(GRACE_S + 3)
    assert len(world.started) >= 6
    world.kill(first)
    for _ in range(30):
        second.call()
    for _ in range(4):
        world.lose(key)
        world.run(10)
    world.run(100)
    assert world.most_in_a_minute()[0] <= 12
    assert waiting(second) < 30  # and it goes on


def test_holdings_have_no_time_to_live(world):
    world.worker().call()
    world.run(3)
    assert world.link._redis.ttl(world.link.prefix + "rates:east") == -1


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="no Redis here (Debian: apt install redis-server)")
def test_a_redis_that_may_evict_leases_is_refused_in_one_line(tmp_path):
    server = OwnRedis(tmp_path)
    server.start()
    try:
        with closing(RedisLink(server.url)) as link:
            assert link.evicts_anything() == ""
            link._redis.config_set("maxmemory", "100mb")
            link._redis.config_set("maxmemory-policy", "volatile-lru")
            assert link.evicts_anything() == ""
            link._redis.config_set("maxmemory-policy", "allkeys-lru")
            with pytest.raises(
                ConfigError, match=r"deletes any key .*\(maxmemory-policy allkeys-lru\): set .* noeviction"
            ) as told:
                Fleet.of(server.url)
            assert "\n" not in str(told.value)
            link._redis.config_set("maxmemory", "0")
            Fleet.of(server.url).stop()
    finally:
        server.kill()
