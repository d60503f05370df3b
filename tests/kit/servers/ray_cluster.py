"""Real Ray nodes: processes of this machine that join and die. Needs the extra ray."""

import os
import subprocess
import time
import warnings
from importlib.util import find_spec

import pytest

__all__ = ["NEEDS_RAY", "cluster", "hosts_left", "node", "wait_for_no_hosts"]
NODE = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
NEEDS_RAY = [
    pytest.mark.long,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: make test-all installs it, or pip install ray"),
]
"""Marks of a module that uses them."""


@pytest.fixture(scope="module")
def cluster():
    """A cluster with its head node."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.cluster_utils import Cluster

        made = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
        yield made
        made.shutdown()


@pytest.fixture
def node(cluster):
    """Adds a node, for one test; arguments are those of ``Cluster.add_node``."""
    added = []

    def add(**arguments):
        added.append(cluster.add_node(**NODE, **arguments))
        return added[-1]

    yield add
    for one in added:
        if one in cluster.worker_nodes:
            cluster.remove_node(one)


def hosts_left():
    """The processes of hosts, and those that speak to Ray for a run."""
    table = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in table.splitlines() if line.startswith("ray::NodeHost") or "cluster.bridge" in line]


def wait_for_no_hosts():
    """Wait until a run that was killed has left nothing."""
    until = time.monotonic() + 30
    while hosts_left() and time.monotonic() < until:
        time.sleep(0.2)
    assert hosts_left() == []
