"""A server that loads the application and then forks its workers: each is a process of the fleet by itself."""

import subprocess
import sys

import pytest

SCRIPT = """
import os, sys, time
from vinelm.backends.limits.rate_limits import EngineRateLimiter, RateLimits
from vinelm.controller import FleetConfig
from vinelm.controller.fleet.joined.fleet import Fleet

fleet = Fleet(FleetConfig(url=sys.argv[1], name=sys.argv[2], daily_usd={"a": 8.0}, journal=sys.argv[3]))
limiter = EngineRateLimiter(RateLimits(requests_per_min=8))
fleet.share_limits({"east": limiter})
with limiter.admit(1, time.sleep):
    pass
fleet.account("a").authorize(1.0)
parent = fleet.process
child = os.fork()
if child == 0:
    account = fleet.account("a")  # the first request
    assert fleet.process != parent, "the same name"
    assert account.reserved_usd == 0.0 and account.free_usd() == 0.0, "the parent's lease"
    assert limiter.share(lambda: None).demand().held == (0, 0), "the parent's share"
    account.authorize(1.0)
    while fleet.processes < 2:
        time.sleep(0.01)
    fleet.stop()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
fleet.stop()
print("both served")
"""


@pytest.mark.long
def test_a_forked_child_joins_by_itself(redis_url, fleet_name, tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, redis_url, fleet_name, str(tmp_path / "fleet.sqlite")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("both served\n", 0), done.stderr
