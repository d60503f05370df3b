"""The upper bound on coverage: never too low, whatever the outcome of the cells in flight. And blocks of request paths."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.tables import random_table

from vinelm.profiler.scheduling.admission import CoverageUpperBound
from vinelm.profiler.scheduling.coverage import Coverage
from vinelm.profiler.scheduling.request_paths import LARGEST_BLOCK, block_end, block_of


@given(seed=st.integers(0, 100_000), n_models=st.integers(1, 3), share=st.floats(0, 1), is_free=st.booleans())
def test_no_outcome_and_no_subset_goes_beyond_it(seed, n_models, share, is_free):
    """Run a part of a table; foresee some of the rest; run any of those, in order, with other outcomes: always below."""
    rng = random.Random(seed)
    table = random_table(seed % 50, n_requests=6, n_models=n_models, depth=3)
    if is_free:
        table.cost_usd[:] = 0.0
    reached = [(r, n) for r in range(6) for n in range(1, len(table.trie)) if table.reached[r, n]]
    account = Coverage(table.template, 6)
    done = set(reached[: int(share * len(reached))])
    for r, n in reached[: len(done)]:
        account.add(table.observation(r, n))
    ahead = [cell for cell in reached if cell not in done and rng.random() < 0.5]
    ahead = [(r, n) for r, n in ahead if parent(table, n) == 0 or (r, parent(table, n)) in done | set(ahead)]
    bound = CoverageUpperBound(account)
    for r, n in ahead:
        is_open = parent(table, n) == 0 or (r, parent(table, n)) in done
        prefix = table.trie.prefix(n)
        bound.add(
            f"{r}",
            len(prefix),
            ((table.template.invocations[len(prefix) - 1].name, prefix[-1]),),
            table.cost_usd[r, n] * rng.uniform(1, 3),
            is_open=is_open,
        )
    most = bound.most
    left = len(reached) - len(done)
    for r, n in ahead:
        if rng.random() < 0.7 and (parent(table, n) == 0 or (r, parent(table, n)) in done):
            account.add(table.observation(r, n))
            done.add((r, n))
            left -= 1
        if left:  # the last cell of all cannot be before another one
            assert account.fraction <= most + 1e-9


@given(seed=st.integers(0, 100_000), share=st.floats(0, 0.9), is_free=st.booleans())
def test_nor_where_paths_go_on_below_a_passed_check(seed, share, is_free):
    """Some of the cells ahead may turn out to be reached or not; those that are not cost dollars and close nothing."""
    rng = random.Random(seed)
    table = random_table(seed % 50, n_requests=6, n_models=2, depth=3)
    if is_free:
        table.cost_usd[:] = 0.0
    cells = [(r, n) for r in range(6) for n in range(1, len(table.trie))]
    account = Coverage(table.template, 6)
    done = set()

    def execute(r, n):
        row = table.observation(r, n)
        account.add(replace(row, is_continued=not table.reached[r, n]))
        done.add((r, n))

    def can_run(r, n):
        return parent(table, n) == 0 or (r, parent(table, n)) in done

    for r, n in cells:
        if can_run(r, n) and (table.reached[r, n] or rng.random() < 0.3) and rng.random() < share:
            execute(r, n)
    bound, ahead = CoverageUpperBound(account), []
    bound.may_go_on = True
    for r, n in cells:
        above = parent(table, n)
        if (r, n) not in done and rng.random() < 0.4 and (can_run(r, n) or (r, above) in ahead):
            ahead.append((r, n))
            is_known = above == 0 or (r, above) in done  # whether its request reaches it
            prefix, upper_usd = table.trie.prefix(n), table.cost_usd[r, n] * rng.uniform(1, 3)
            bound.add(
                f"{r}", len(prefix), ((table.template.invocations[len(prefix) - 1].name, prefix[-1]),), upper_usd,
                is_open=is_known and bool(table.reached[r, n]), is_continued=is_known and not table.reached[r, n],
            )  # fmt: skip
    most = bound.most
    for r, n in ahead:
        if can_run(r, n) and rng.random() < 0.8:
            execute(r, n)
        assert account.is_complete or account.fraction <= most + 1e-9


def parent(table, node):
    return int(table.trie.parent[node])


def test_with_nothing_ahead_it_is_the_coverage():
    table = random_table(3, n_requests=4, n_models=2, depth=2)
    account = Coverage(table.template, 4)
    for node in (1, table.trie.node(("m1",))):
        account.add(table.observation(0, node))
    assert CoverageUpperBound(account).most == pytest.approx(account.fraction)


def test_before_the_first_dollar_nothing_is_certain():
    table = random_table(3, n_requests=4, n_models=2, depth=2)
    bound = CoverageUpperBound(Coverage(table.template, 4))
    assert bound.most == 0.0
    bound.add("q0", 1, ((table.template.invocations[0].name, "m0"),), 0.5, is_open=True)
    assert bound.most == 1.0


def test_the_interval_holds_the_coverage_nine_times_in_ten_or_nearly():
    """Requests differ in how hard they are, so that their cells go on together."""
    import numpy as np

    from vinelm.profiler import CascadeSampler

    held = 0
    for seed in range(20):
        table = random_table(seed, n_requests=100, n_models=3, depth=3)
        rng = np.random.default_rng(seed)
        hard = rng.normal(0, 1.5, (100, 1))
        table.stopped[:, 1:] = rng.random(table.stopped[:, 1:].shape) < 1 / (1 + np.exp(hard))
        account, done, spent = Coverage(table.template, 100), set(), 0.0
        for request_id, path, *_ in CascadeSampler(table.template, table.request_ids, seed).propose(0, ()):
            r = table.request_ids.index(request_id)
            for k in range(1, 4):
                node = table.trie.node(path[:k])
                if (r, node) not in done:
                    done.add((r, node))
                    account.add(table.observation(r, node))
                    spent += table.cost_usd[r, node]
                if table.ended[r, node]:
                    break
            if spent > 0.06 * table.exhaustive_cost_usd:
                break
        low, high = account.interval()
        assert 0.0 <= low <= account.fraction <= high <= 1.0
        held += low <= spent / table.exhaustive_cost_usd <= high
    assert held >= 15


def test_blocks_double_up_to_the_largest_and_follow_each_other():
    block = 0
    for number in range(5 * LARGEST_BLOCK):
        assert block_of(number) in (block, block + 1)
        block = block_of(number)
        assert number < block_end(block)
        assert block == 0 or number >= block_end(block - 1)
    assert block_end(block) - block_end(block - 1) == LARGEST_BLOCK
