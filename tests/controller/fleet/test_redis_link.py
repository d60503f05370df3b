"""A Redis that runs and refuses is not called one that does not answer: what it refuses is said, and how to mend it."""

import socket
import threading

import pytest
from redis_for_bench import OwnRedis

from vinelm.controller import FleetConfig
from vinelm.controller.fleet.joined.fleet import Fleet
from vinelm.controller.fleet.live_invocations import LiveInvocations
from vinelm.controller.fleet.member import ALONE, FleetMember
from vinelm.controller.fleet.redis_link import RedisLink
from vinelm.errors import ConfigError, FleetUnreachable

redis = pytest.importorskip("redis")
PASSWORD = "s3cret-canary"


def admin(server):
    return redis.Redis.from_url(server.url)


def needs_password(server, folder):
    admin(server).config_set("requirepass", PASSWORD)
    return server.url


def wrong_password(server, folder):
    admin(server).config_set("requirepass", "another")
    return server.url.replace("redis://", f"redis://:{PASSWORD}@")


def unknown_user(server, folder):
    return server.url.replace("redis://", f"redis://nobody:{PASSWORD}@")


def user_of(server, *rules):
    admin(server).execute_command("ACL", "SETUSER", "vine", "on", f">{PASSWORD}", *rules)
    return server.url.replace("redis://", f"redis://vine:{PASSWORD}@")


def reads_only_user(server, folder):
    return user_of(server, "~*", "+@read", "+@connection", "+multi", "+exec")


def other_keys_user(server, folder):
    return user_of(server, "~other:*", "+@all")


def wrong_database(server, folder):
    return server.url.replace("/0", "/99")


def full(server, folder):
    admin(server).config_set("maxmemory", 1)
    return server.url


def replica(server, folder):
    primary = OwnRedis(folder)
    primary.start()
    admin(server).execute_command("REPLICAOF", "127.0.0.1", primary.port)
    server.primary = primary
    return server.url


def too_few_replicas(server, folder):
    """A refusal of which VineLM knows nothing but the server's own code: NOREPLICAS."""
    admin(server).config_set("min-replicas-to-write", 1)
    return server.url


REFUSALS = [
    (needs_password, "refuses user and password", "in the URL"),
    (wrong_password, "refuses user and password", "in the URL"),
    (unknown_user, "refuses user and password", "in the URL"),
    (reads_only_user, "refuses commands to its user", "ACL"),
    (other_keys_user, "refuses commands to its user", "vinelm:*"),
    (wrong_database, "has no database of that number", "at the URL's end"),
    (full, "is full and refuses to write", "maxmemory"),
    (replica, "is a replica, which refuses to write", "primary"),
    (too_few_replicas, "refuses a command (NOREPLICAS)", "its log"),
]


@pytest.fixture
def server(redis_server):
    yield redis_server
    if hasattr(redis_server, "primary"):
        redis_server.primary.kill()


@pytest.mark.parametrize(("break_it", "says", "mend"), REFUSALS)
def test_what_it_refuses_is_said_and_how_to_mend_it(server, fleet_name, tmp_path, break_it, says, mend):
    """Each was "does not answer: see that it runs"."""
    url = break_it(server, tmp_path)
    link = RedisLink(url, fleet_name)
    with pytest.raises(FleetUnreachable) as caught:
        link.set("key", b"value")
    line = str(caught.value)
    assert says in line
    assert mend in line
    assert f"127.0.0.1:{server.port}" in line
    assert "does not answer" not in line
    assert "\n" not in line
    assert PASSWORD not in line
    assert link.why == f"the fleet's Redis {says}"


@pytest.mark.parametrize(("break_it", "says", "mend"), [REFUSALS[0], REFUSALS[3], REFUSALS[6]])
def test_the_trace_the_warning_and_the_refusals_say_it_too(server, fleet_name, tmp_path, break_it, says, mend):
    url = break_it(server, tmp_path)
    member = FleetMember(RedisLink(url, fleet_name), LiveInvocations("p1"))
    assert not member.round()
    assert member.note == f"the fleet's Redis {says}: this process goes on alone, within its last share"
    assert member.note != ALONE
    with pytest.raises(ConfigError, match=says) as caught:
        Fleet(FleetConfig(url=url, name=fleet_name, required=True))
    assert mend in str(caught.value)
    config = FleetConfig(url=url, name=fleet_name, daily_usd={"acme": 1.0}, journal=tmp_path / "fleet.sqlite")
    with pytest.warns(UserWarning, match=f"{says}.*goes on alone"):
        fleet = Fleet(config)
    try:
        with pytest.raises(Exception, match=f"tenant 'acme'.*{says}"):
            fleet.account("acme").authorize(0.1)
    finally:
        fleet.stop()


def test_when_it_takes_commands_again_nothing_is_said_any_more(server, fleet_name, tmp_path):
    url = full(server, tmp_path)
    member = FleetMember(RedisLink(url, fleet_name), LiveInvocations("p1"))
    assert not member.round()
    admin(server).config_set("maxmemory", 0)
    assert member.round()
    assert member.note == ""


def test_one_that_is_not_there_does_not_answer(server, fleet_name):
    server.kill()
    link = RedisLink(server.url, fleet_name)
    with pytest.raises(FleetUnreachable, match=r"does not answer .*see that it runs"):
        link.ping()
    assert link.why == "the fleet's Redis does not answer"


def test_what_is_no_redis_is_not_called_one_that_does_not_answer():
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer():
            with listening.accept()[0] as one:
                one.recv(4096)
                one.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        link = RedisLink(f"redis://127.0.0.1:{listening.getsockname()[1]}/0")
        with pytest.raises(FleetUnreachable, match=r"answers, but not as a Redis does .*check its address and port"):
            link.ping()
        thread.join(10)
