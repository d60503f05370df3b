"""Hosts of a cluster on threads of this process: the same code as on Ray's nodes, and nodes that can be dropped."""

import pickle
import queue
import threading
from itertools import count

import pytest

from vinelm.errors import InputError
from vinelm.profiler.cluster.host import UnitHost
from vinelm.profiler.cluster.messages import (
    Connected,
    Disconnected,
    HostLost,
    HostReady,
    HostRefused,
    HostSaid,
    HostSetup,
    HostStarted,
    NodeProblem,
    RunUnit,
)
from vinelm.profiler.cluster.worker import ClusterWorker
from vinelm.running import hosts
from vinelm.version import __version__


class FakeCluster:
    """Stands in for :class:`vinelm.profiler.cluster.bridge.RayLink`. A dropped host goes on, and is not heard any more."""

    def __init__(self, setup, make_worker, nodes=("one", "two"), announced=0):
        self.setup, self.make_worker = setup, make_worker
        self.events = queue.SimpleQueue()
        self.hosts, self.sent = {}, []
        self.on_sent = None  # called with the cluster, the host and each message, before the host has it
        self._numbers = count()
        self.events.put(Connected(announced))
        for node in nodes:
            self.join(node)

    def join(self, node):
        """Start a host on a node."""
        number = next(self._numbers)
        self.events.put(HostStarted(number, node))
        try:
            host = UnitHost(self.setup, self.make_worker)
        except InputError as error:
            self.events.put(HostRefused(node, NodeProblem.of(error)))
            self.events.put(HostLost(number))
            return None
        self.hosts[number] = host
        self.events.put(HostReady(number))
        threading.Thread(target=self._pump, args=(number, host), daemon=True).start()
        return number

    def _pump(self, number, host):
        while number in self.hosts:
            said = host.poll(0.05)
            if said and number in self.hosts:
                self.events.put(HostSaid(number, said))

    def receive(self):
        return self.events.get()

    def send(self, host, message):
        self.sent.append((host, message))
        if self.on_sent is not None:
            self.on_sent(self, host, message)
        if host in self.hosts:
            self.hosts[host].send(message)

    def host_of(self, cell):
        """The host that was given this cell last."""
        return [host for host, message in self.sent if isinstance(message, RunUnit) and message.job.cell == cell][-1]

    def drop(self, host):
        if self.hosts.pop(host, None) is not None:
            self.events.put(HostLost(host))

    def disconnect(self, detail):
        self.hosts.clear()
        self.events.put(Disconnected(detail))

    def close(self):
        self.disconnect("closed")


@pytest.fixture
def clusters(monkeypatch):
    """Hosts in place of a cluster's, for verbs that serve requests: each loads the application from what is sent.

    It is a list of the cluster of each run. ``nodes`` are their names, ``on_sent`` is told of messages, and ``changed`` changes
    what is sent.
    """

    class Made(list):
        nodes, changed, on_sent = ("one", "two"), None, None

    made = Made()

    def joined(_, units, models, limiters, on_note, *, verb, unit):
        sent = pickle.loads(pickle.dumps(made.changed(units) if made.changed else units))  # noqa: S301  # its own
        setup = HostSetup(version=__version__, units=sent, limited=tuple(limiters), folder=None, path=())
        link = FakeCluster(setup, None, made.nodes)
        link.on_sent = made.on_sent
        made.append(link)
        return ClusterWorker(link, limiters, on_note, unit=unit)

    monkeypatch.setattr(hosts, "cluster_worker", joined)
    return made
