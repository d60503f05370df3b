"""Starts and controls the hosts on Ray's nodes, in the process that is Ray's driver. Only this file imports Ray."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RaySystemError, RayTaskError, RuntimeEnvSetupError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from vinelm.errors import ConfigError, InputError
from vinelm.profiler.cluster.host import UnitHost, require_version
from vinelm.profiler.cluster.messages import (
    Connected,
    FromHost,
    HostEvent,
    HostLost,
    HostReady,
    HostRefused,
    HostSaid,
    HostSetup,
    HostStarted,
    NodeProblem,
    ToHost,
)
from vinelm.profiler.scheduling.settings import RayCluster
from vinelm.threads import started

_LOOK_S = 1.0
_AGAIN_S = 5.0
_POLL_S = 10.0
_ANSWER_S = 10.0
_STORE_BYTES = 100 * 2**20
NOT_SHIPPED = (".env", ".env.*", ".git", ".venv", "venv", "build", "dist", "runs", "__pycache__")
"""Files of a copied folder that are not sent to the nodes, in addition to those in ``.gitignore`` and ``.rayignore``."""


class NodeHost:
    """The Ray actor on a cluster node, which executes a run's jobs there.

    :meth:`load` waits until the workflow is loaded, and :meth:`poll` waits for a message. The other methods do not block.
    """

    def __init__(self) -> None:
        self._host: UnitHost | None = None

    def start(self, version: str) -> NodeProblem | None:
        """Return the problem if this node's VineLM is not ``version``, the run's version; otherwise None.

        Called before the other methods.
        """
        try:
            require_version(version)
        except InputError as error:
            return NodeProblem.of(error)
        return None

    def load(self, setup: HostSetup) -> NodeProblem | None:
        """Load the workflow; return the problem if loading fails, otherwise None."""
        try:
            self._host = UnitHost(setup)
        except Exception as error:  # the workflow is built here, which may raise anything
            return NodeProblem.of(error)
        return None

    def send(self, message: ToHost) -> None:
        """Handle a message from the run's process."""
        assert self._host is not None
        self._host.send(message)

    def poll(self) -> tuple[FromHost, ...]:
        """Return the messages that wait to be sent to the run, in order; if there are none, wait a limited time for one."""
        assert self._host is not None
        return self._host.poll(_POLL_S)


class RayHosts:
    """Starts one host (an actor that executes jobs) on each node with a free CPU, including nodes that join later.

    Args:
        tell: called, from any thread, with each event, such as the start or the loss of a host.

    Raises:
        ConfigError: the cluster does not exist, or runs a different version of Ray or Python.
    """

    def __init__(self, cluster: RayCluster, setup: HostSetup, tell: Callable[[HostEvent], None]) -> None:
        self._tell = tell
        self._actors: dict[int, Any] = {}
        self._numbers = count()
        self._busy: dict[str, float] = {}  # by node: when it may be asked again
        self._is_closed = threading.Event()
        connect(cluster)
        tell(Connected(len(_usable_nodes())))
        has_folder = bool(ray.get_runtime_context().runtime_env.get("working_dir"))  # shipped by us, or by `ray job submit`
        self._setup = replace(setup, folder=None) if has_folder else setup
        started(self._look, "vinelm nodes")

    def send(self, host: int, message: ToHost) -> None:
        """Send a message to a host; drop the message if the host is lost."""
        actor = self._actors.get(host)
        if actor is not None:
            actor.send.remote(message)

    def end(self, host: int) -> None:
        """Kill the host with this number, and the jobs that it executes."""
        actor = self._actors.get(host)
        if actor is not None:
            with suppress(RayError, ValueError):
                ray.kill(actor)

    def close(self) -> None:
        """Kill all hosts and disconnect from Ray; a cluster that was started for the run is shut down."""
        self._is_closed.set()
        for host in list(self._actors):
            self.end(host)
        ray.shutdown()

    def _look(self) -> None:
        """Until :meth:`close`, look for usable nodes without a host again and again, and start a host on each."""
        while not self._is_closed.is_set():
            # Ask again in a second if the cluster does not answer now.
            with suppress(RayError, RuntimeError, OSError):
                for node in _usable_nodes():
                    place = node["NodeID"]
                    if self._busy.get(place, 0) <= time.monotonic():
                        # Before the thread starts, so that a node is never asked for two hosts.
                        self._busy[place] = float("inf")
                        name = str(node.get("NodeName") or node["NodeManagerAddress"])
                        started(partial(self._serve, place, name), "vinelm node")
            self._is_closed.wait(_LOOK_S)

    def _serve(self, place: str, name: str) -> None:
        """Start a host on a node, and forward the host's messages until the host is lost.

        ``place`` is Ray's id of the node, ``name`` the name of the node in messages to the user.
        """
        host, is_started = next(self._numbers), False
        try:
            strategy = NodeAffinitySchedulingStrategy(place, soft=False)
            # Ray must not restart it, or the run would not learn that its units are gone. poll() holds one of its threads while
            # it waits.
            actor = ray.remote(num_cpus=1, max_concurrency=4, max_restarts=0, scheduling_strategy=strategy)(NodeHost).remote()
            self._actors[host] = actor
            problem = ray.get(actor.start.remote(self._setup.version))
            if problem is None:
                is_started = True
                self._tell(HostStarted(host, name))
                problem = ray.get(actor.load.remote(self._setup))
            if problem is not None:
                self._tell(HostRefused(name, problem))
                self.end(host)
                return  # not asked again
            self._tell(HostReady(host))
            while not self._is_closed.is_set():
                messages = ray.get(actor.poll.remote())
                if messages:
                    self._tell(HostSaid(host, messages))
        except (RayError, OSError) as error:
            refused = None if self._is_closed.is_set() else refusal_of(error, self._setup.version)
            if refused is not None:
                self._tell(HostRefused(name, refused))
                return
            self._busy[place] = time.monotonic() + _AGAIN_S
        finally:
            self.end(host)  # a host that only seems to be gone must not continue
            self._actors.pop(host, None)
            if is_started:
                self._tell(HostLost(host))


def _usable_nodes() -> list[dict[str, Any]]:
    """Return Ray's record of each running node that has a CPU, whether free or busy."""
    return [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]


def connect(cluster: RayCluster) -> None:
    """Connect to the cluster as a driver, or start a cluster.

    Raises:
        ConfigError: the cluster does not exist (``ray-address``), runs a different version of Ray or Python (``ray-version``),
            or refuses this machine (``ray-refused``).
    """
    _require_answer(cluster)
    arguments: dict[str, Any] = {"address": cluster.address, "log_to_driver": False, "logging_level": logging.ERROR}
    if cluster.is_local:
        arguments |= {"include_dashboard": False, "object_store_memory": _STORE_BYTES}
    if cluster.ships_folder:
        arguments["runtime_env"] = {"working_dir": os.getcwd(), "excludes": list(NOT_SHIPPED)}
    try:
        ray.init(**arguments)
    except RuntimeError as error:
        if "ersion mismatch" not in str(error):
            raise _no_cluster(cluster, error) from error
        what = " ".join(str(error).partition(":")[2].split())  # "Version mismatch: ..." over several lines
        raise ConfigError(f"{what}: use the same versions of Python and Ray everywhere", code="ray-version") from error
    except (ConnectionError, ValueError, OSError) as error:
        raise _no_cluster(cluster, error) from error
    except RayError as error:  # for example a missing token for a cluster that requires one
        raise ConfigError(f"the Ray cluster refuses this machine: {_line(error)}", code="ray-refused") from error


def _require_answer(cluster: RayCluster) -> None:
    """Raise :class:`ConfigError` at once if nothing listens at the cluster's address; Ray itself would retry for minutes."""
    address = os.environ.get("RAY_ADDRESS", "auto") if cluster.address == "auto" else cluster.address
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal():
        try:
            socket.create_connection((host, int(port)), timeout=_ANSWER_S).close()
        except OSError as error:
            raise ConfigError(f"{address}: no Ray cluster to join: {_line(error)}", code="ray-address") from error


def _no_cluster(cluster: RayCluster, error: Exception) -> ConfigError:
    if cluster.address == "auto":
        return ConfigError(
            "this machine belongs to no Ray cluster: start one (ray start --head), or give its address, or local",
            code="ray-address",
        )
    what = "Ray does not start here" if cluster.is_local else f"{cluster.address}: no Ray cluster to join"
    return ConfigError(f"{what}: {_line(error)}", code="ray-address")


def refusal_of(error: BaseException, version: str) -> NodeProblem | None:
    """Return why a node can never be used, as shown by ``error``; None if only the actor or the node itself died.

    ``version`` is the run's VineLM version, for the text of the problem.
    """
    text = str(error)
    if "No module named 'vinelm" in text:
        return NodeProblem.of(ConfigError(f"VineLM {version} is not installed there: install it", code="node-version"))
    if isinstance(error, RuntimeEnvSetupError):
        return NodeProblem.of(ConfigError(f"the folder cannot be copied there: {_line(error)}", code="node-folder"))
    if isinstance(error, RayActorError) and "creation task" not in text:
        return None
    if isinstance(error, RayTaskError | RaySystemError | RayActorError):
        return NodeProblem.of(ConfigError(f"it cannot run VineLM {version}: {_line(error)}", code="node-fails"))
    return None


def _line(error: BaseException) -> str:
    """Return the last non-empty line of a Ray error's text. If the text is a remote traceback, this line names the error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]
