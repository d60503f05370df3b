"""The global loop on a real Redis: how long a round takes over the invocations of all publishers."""

from __future__ import annotations

import statistics
import time
import uuid
from typing import Any

from fleet_parts.publishers import EVERY_S, PROCESSES, PUBLISHERS, ROWS, publishers

from vinelm.controller import GlobalLoop, RedisLink
from vinelm.controller.fleet.built_in_policies import fleet_policy

POLICY = "slack+balance+shares"


def loop_rounds(url: str, rounds: int) -> dict[str, Any]:
    """Run the loop of `vinelm fleet run` beside the publishers, every 250 ms.

    Milliseconds of a whole round and of its parts, and processor time of the loop's process in a round: what runs beside it on
    the same cores, publishers and Redis among it, makes the first longer and not the last. ``without_orders`` counts the rounds
    that installed none, because the policy took longer than its period.
    """
    name = f"bench-{uuid.uuid4().hex[:8]}"
    done, took, used = [], [], []
    with publishers(url, name):
        loop = GlobalLoop(RedisLink(url, name), fleet_policy(POLICY))
        for _ in range(rounds):
            before, used_before = time.perf_counter(), time.process_time()
            done.append(loop.round())
            took.append(time.perf_counter() - before)
            used.append(time.process_time() - used_before)
            time.sleep(max(EVERY_S - took[-1], 0.0))
        loop.close()
    whole = [one for one in done if one.rows == PROCESSES * PUBLISHERS * ROWS]
    return {
        "policy": POLICY,
        "rounds": rounds,
        "rows": max(one.rows for one in done),
        "rounds_over_all_rows": len(whole),
        "without_orders": sum(bool(one.problem) for one in done),
        "round_ms": 1000 * statistics.median(took),
        "round_worst_ms": 1000 * max(took),
        "round_cpu_ms": 1000 * statistics.median(used),
        "view_ms": 1000 * statistics.median(one.view_s for one in done),
        "policy_ms": 1000 * statistics.median(one.policy_s for one in done),
        "install_ms": 1000 * statistics.median(one.install_s for one in done),
    }
