"""Calls in the providers' batches: half the price, never bought twice, whatever dies and whatever the provider says."""

import json
import math
import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from kit.servers.batch_provider import BatchProvider, completion, generated, message
from kit.servers.postgres_server import postgres_server_url, postgres_url  # noqa: F401 - fixtures
from kit.toys.batched import KEY, PRICE, PROVIDERS, QUICK, SECRET, answer, entry, loaded, run, settings
from kit.toys.profiling import State, one_stage

from vinelm.backends.anthropic.batches import AnthropicBatches
from vinelm.backends.gemini.batches import GeminiBatches
from vinelm.backends.openai.batches import OpenAIBatches
from vinelm.errors import ConfigError, VineLMError
from vinelm.traces import ObservationStore

BACKENDS = {"openai": OpenAIBatches, "anthropic": AnthropicBatches, "gemini": GeminiBatches}


@pytest.fixture
def provider(monkeypatch):
    monkeypatch.setenv(KEY, SECRET)
    made = BatchProvider(answer)
    yield made
    made.stop()


def rows_of(path):
    with ObservationStore.open(path) as store:
        return {(row.request_id, row.prefix): row for row in store.observations()}


def content(path):
    """What must be equal however often a run died: all but what is measured."""
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        rows = [dict(row) for row in connection.execute("SELECT * FROM observations ORDER BY request_id, prefix")]
        for row in rows:
            for name in ("row_id", "tool_latency_s", "in_flight"):
                del row[name]
        one = lambda query: connection.execute(query).fetchone()[0]  # noqa: E731
        return {
            "rows": rows,
            "states": [tuple(row) for row in connection.execute("SELECT * FROM checkpoints ORDER BY request_id, prefix")],
            "committed_usd": round(one("SELECT TOTAL(coalesce(settled_usd, reserved_usd)) FROM ledger"), 12),
            "open": one("SELECT count(*) FROM ledger WHERE settled_usd IS NULL"),
            "calls": one("SELECT count(*) FROM batch_calls"),
            "open_batches": one("SELECT count(*) FROM batches WHERE NOT is_closed"),
        }


def test_each_call_costs_half_and_waits_with_others(provider, tmp_path):
    made = loaded(provider.url)
    result = run(made, tmp_path / "s.db")
    rows = rows_of(tmp_path / "s.db")
    assert result.stopped_by == "complete"
    assert len(provider.batches) < len(rows) / 1.5  # the first blocks of paths are small
    assert sum(provider.bought.values()) == len(rows)
    assert not provider.at_once
    for (_, prefix), row in rows.items():
        assert row.failure is None
        assert math.isnan(row.latency_s)
        assert row.list_usd == pytest.approx(PRICE.cost_usd(100, 10, 40))
        halved_cache = prefix[-1] == "m1"  # Anthropic's
        cached_usd = 40 * (0.1 if halved_cache else 0.2) / 1e6
        assert row.cost_usd == pytest.approx((60 * 1.0 + 10 * 4.0) / 1e6 + cached_usd)
    assert result.committed_usd == pytest.approx(sum(row.cost_usd for row in rows.values()))
    assert content(tmp_path / "s.db")["calls"] == 0


@pytest.mark.long
def test_a_store_in_postgres_has_the_rows_and_dollars_of_a_file(provider, postgres_url, tmp_path):  # noqa: F811
    made = loaded(provider.url)
    for address in (tmp_path / "s.db", postgres_url):
        assert run(made, address).stopped_by == "complete"
    paid = []
    for address in (tmp_path / "s.db", postgres_url):
        with ObservationStore.open(address) as store:
            paid.append(({(row.request_id, row.prefix): row.cost_usd for row in store.observations()}, store.committed_usd()))
    assert paid[0][0] == paid[1][0]
    assert paid[0][1] == pytest.approx(paid[1][1])
    bought = sum(provider.bought.values())
    run(made, postgres_url)
    assert sum(provider.bought.values()) == bought == 2 * len(paid[0][0])


def test_the_rows_are_those_of_calls_made_at_once(provider, tmp_path):
    made = loaded(provider.url)
    run(made, tmp_path / "batches.db")
    run(made, tmp_path / "once.db", settings(workers=4, batch_prices=None))
    batched, once = rows_of(tmp_path / "batches.db"), rows_of(tmp_path / "once.db")
    assert batched.keys() == once.keys()
    for cell, row in batched.items():
        other = once[cell]
        assert (row.success, row.stopped, row.tokens_in, row.tokens_out, row.tokens_cached) == (
            other.success, other.stopped, other.tokens_in, other.tokens_out, other.tokens_cached,
        )  # fmt: skip
        assert row.served_usd == pytest.approx(other.cost_usd)
    assert sum(provider.at_once.values()) == len(once)


def test_the_first_paths_have_seconds_and_the_ordinary_price(provider, tmp_path):
    run(loaded(provider.url), tmp_path / "s.db", settings(timed_paths=1))
    rows = rows_of(tmp_path / "s.db").values()
    timed = [row for row in rows if row.is_timed]
    assert {(row.stage, row.model) for row in timed if row.depth == 1} == {("generate", f"m{k}") for k in range(3)}
    assert all(row.list_usd is None and row.cost_usd == pytest.approx(PRICE.cost_usd(100, 10, 40)) for row in timed)
    assert len(timed) == sum(provider.at_once.values()) < len(rows)


SPOILED = {"expired": "timeout", "errored": "context_length", "lost": "server"}


@pytest.mark.parametrize("how", SPOILED)
def test_calls_that_a_batch_does_not_answer_are_failures_as_data(provider, tmp_path, how):
    provider.spoil = lambda model, prompt: how if "number 1" in prompt else None
    run(loaded(provider.url, depth=1), tmp_path / "s.db")
    rows = rows_of(tmp_path / "s.db")
    assert {row.failure for (request, _), row in rows.items() if request == "q1"} == {SPOILED[how]}
    assert {row.failure for (request, _), row in rows.items() if request != "q1"} == {None}
    for (request, _), row in rows.items():
        # What was not made is not billed; what is lost may have been.
        assert (row.cost_usd > 0) == (request != "q1" or how == "lost")
        assert "s3cret" not in (row.detail or "")


@pytest.mark.parametrize(
    ("provider_name", "status", "kind"),
    [
        ("openai", "failed", "rate_limit"),
        ("openai", "cancelled", None),
        ("gemini", "EXPIRED", "timeout"),
        ("gemini", "FAILED", "server"),
    ],
)
def test_a_batch_that_ends_badly_fails_the_calls_that_it_lacks(provider, tmp_path, provider_name, status, kind):
    provider.status = status
    run(loaded(provider.url, (provider_name,), depth=1), tmp_path / "s.db")
    assert {row.failure for row in rows_of(tmp_path / "s.db").values()} == {kind}


def test_a_submission_that_is_turned_down_is_tried_again(provider, tmp_path):
    provider.refuse = 429, {"error": {"message": "slow down", "type": "rate_limit_error", "code": "rate_limit_exceeded"}}
    tries = Counter()
    submitted = provider.submitted

    def counted(kind, calls, **more):
        tries[kind] += 1
        if tries[kind] == 2:
            provider.refuse = None
        return submitted(kind, calls, **more)

    provider.submitted = counted
    run(loaded(provider.url, ("openai",), depth=1), tmp_path / "s.db")
    assert tries["batch"] == 2
    assert provider.calls_per_batch == [3]


def test_a_submission_that_can_never_work_is_a_failure_of_its_calls(provider, tmp_path):
    provider.refuse = 400, {"error": {"message": "no", "type": "invalid_request_error", "code": "invalid"}}
    run(loaded(provider.url, ("anthropic",), depth=1), tmp_path / "s.db")
    rows = rows_of(tmp_path / "s.db").values()
    assert {row.failure for row in rows} == {"malformed"}
    assert sum(row.cost_usd for row in rows) == 0
    assert not provider.bought


@pytest.mark.parametrize("name", ["openai", "anthropic", "gemini"])
def test_a_submission_whose_answer_is_lost_is_found_and_not_bought_again(provider, tmp_path, name):
    provider.cut = 1
    run(loaded(provider.url, (name,), depth=1), tmp_path / "s.db")
    assert provider.cut == 0
    assert provider.calls_per_batch == [3]
    assert {row.failure for row in rows_of(tmp_path / "s.db").values()} == {None}


def test_a_batch_that_the_provider_has_lost_is_a_failure_that_may_be_billed(provider, tmp_path):
    submitted = provider.submitted

    def forgetting(kind, calls, **more):
        return provider.batches.pop(submitted(kind, calls, **more)["id"])

    provider.submitted = forgetting
    run(loaded(provider.url, ("openai",), depth=1), tmp_path / "s.db")
    rows = rows_of(tmp_path / "s.db").values()
    assert {row.failure for row in rows} == {"server"}
    assert all(row.cost_usd > 0 for row in rows)


def test_a_stage_of_several_calls_waits_for_one_batch_after_another(provider, tmp_path):
    def generate(state: State, model):
        model.invoke("plan " + state["question"])
        model.invoke("plan " + state["question"])  # the same again is another call
        return {"answer": model.invoke("write " + state["question"]).text}

    run(loaded(provider.url, ("openai",), depth=1, build=one_stage(generate)), tmp_path / "s.db")
    assert provider.calls_per_batch == [3, 3, 3]
    assert {row.calls for row in rows_of(tmp_path / "s.db").values()} == {3}


def test_a_coroutine_waits_as_well(provider, tmp_path):
    async def generate(state: State, model):
        return {"answer": (await model.ainvoke("write " + state["question"])).text}

    run(loaded(provider.url, ("gemini",), depth=1, build=one_stage(generate)), tmp_path / "s.db")
    assert provider.calls_per_batch == [3]


def test_a_run_that_stops_waiting_goes_on_with_the_same_line(provider, tmp_path):
    provider.delay_s = 1e6
    made = loaded(provider.url, ("openai", "anthropic"), depth=1)
    impatient = type(QUICK)(**{**vars(QUICK), "wait_s": 0.3})
    with pytest.raises(VineLMError, match="run the same line again to go on waiting") as raised:
        run(made, tmp_path / "s.db", settings(times=impatient))
    assert raised.value.code == "batches-left"
    assert "\n" not in str(raised.value)
    provider.delay_s = 0.0
    provider.end()
    run(made, tmp_path / "s.db")
    assert sum(provider.bought.values()) == 6
    found = content(tmp_path / "s.db")
    assert (len(found["rows"]), found["open"], found["calls"]) == (6, 0, 0)
    assert found["committed_usd"] == pytest.approx(sum(row["cost_usd"] for row in found["rows"]))


def test_what_was_bought_and_is_not_asked_for_again_counts(provider, tmp_path):
    """The prompt changed between two runs: what the first one bought for the cell is paid for all the same."""
    provider.delay_s = 1e6
    words = ["one"]

    def generate(state: State, model):
        return {"answer": model.invoke(f"{words[0]} {state['question']}").text}

    made = loaded(provider.url, ("openai",), n_requests=1, depth=1, build=one_stage(generate))
    impatient = type(QUICK)(**{**vars(QUICK), "wait_s": 0.3})
    with pytest.raises(VineLMError):
        run(made, tmp_path / "s.db", settings(times=impatient))
    words[0] = "two"
    provider.delay_s = 0.0
    provider.end()
    result = run(made, tmp_path / "s.db")
    assert sum(provider.bought.values()) == 2
    assert result.committed_usd > 2 * result.spent_usd


def test_no_key_and_no_prompt_is_kept(provider, tmp_path):
    provider.answer = lambda model, prompt: f"right, says {SECRET}"
    provider.delay_s = 1e6
    made = loaded(provider.url, ("openai",), n_requests=2, depth=1)
    impatient = type(QUICK)(**{**vars(QUICK), "wait_s": 0.3})
    with pytest.raises(VineLMError):
        run(made, tmp_path / "s.db", settings(times=impatient))
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert SECRET.encode() not in kept
    assert b"answer, please" not in kept  # of the prompts
    provider.end()
    run(made, tmp_path / "s.db")
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        assert SECRET not in "".join(str(row) for row in connection.execute("SELECT * FROM observations"))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"has_batches": False}, "engine of your own .*batches = true"),
        ({"providers": ("openai",), "score_by_judge": True}, "judge"),
        ({"providers": ("bedrock",), "has_batches": False}, "no model has batch prices"),
        ({"step_timeout": 5.0}, "step_timeout"),
    ],
)
def test_what_cannot_go_in_batches_is_refused_in_one_line(provider, tmp_path, how, said):
    how = dict(how)
    if how.pop("score_by_judge", False):
        from vinelm.judging import llm_judge

        how["score"] = llm_judge("m0", answer="answer", rubric="right?")
    if step := how.pop("step_timeout", None):
        from kit.toys.profiling import build

        def limited(vine):
            graph = build(vine).compile()
            graph.step_timeout = step
            return graph

        how["build"] = limited
    with pytest.raises(ConfigError, match=said) as raised:
        run(loaded(provider.url, **how), tmp_path / "s.db")
    assert "\n" not in str(raised.value)
    assert not provider.bought


# -- kill -9 -----------------------------------------------------------------------------------------------------


FORKS = "from kit.toys.batched import serve_forks; serve_forks()  # of vinelm"


class Forks:
    """Processes that profile on the provider, one after another."""

    def __init__(self, url):
        self.url = url
        self.server = subprocess.Popen(
            [sys.executable, "-c", FORKS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
        )
        assert self.server.stdout.readline() == "ready\n"

    def run(self, store, **how):
        """The status with which it ended."""
        self.server.stdin.write(json.dumps({"url": self.url, "store": str(store), **how}) + "\n")
        self.server.stdin.flush()
        return int(self.server.stdout.readline())

    def close(self):
        self.server.stdin.close()
        self.server.wait()
        self.server.stdout.close()


@pytest.fixture
def forks(provider, warm_python):
    made = Forks(provider.url)
    yield made
    made.close()


def torture(forks, provider, folder, ways, most_kills=3, enough=10**6):
    """Kill runs as ``ways`` say, run each to its end, and compare with an undisturbed one; returns how many were killed."""
    before = provider.bought.copy()
    assert forks.run(folder / "calm.db") == 0
    calm, bought = content(folder / "calm.db"), provider.bought - before
    assert len(calm["rows"]) > 15
    kills = 0
    for number, way in enumerate(ways):
        before, store = provider.bought.copy(), folder / f"{number}.db"
        status = 9
        for _ in range(most_kills):
            status = forks.run(store, **way)
            assert status in (0, 9)
            kills += status == 9
        if status:
            assert forks.run(store) == 0
        assert content(store) == calm, way
        assert provider.bought - before == bought, way
        store.unlink()
        if kills >= enough:
            break
    return kills


def test_kill_9_between_any_two_events_and_nothing_is_bought_twice(forks, provider, tmp_path):
    assert torture(forks, provider, tmp_path, [{"die": n} for n in (13, 30)], most_kills=1) == 2


@pytest.mark.long
def test_200_kills_leave_the_undisturbed_store(forks, provider, tmp_path):
    clock = random.Random(29)
    ways = (
        {"die": clock.randrange(5, 60)} if clock.random() < 0.6 else {"die_after_s": clock.uniform(0.2, 2.5)}
        for _ in range(999)
    )
    assert torture(forks, provider, tmp_path, ways, enough=200) >= 200


# -- a provider that contradicts itself ------------------------------------------------------------------------------


def counted(provider, text, tokens_out):
    """An answer in the provider's own format that says how many tokens it has; None: that does not say it."""
    made = {"openai": completion, "anthropic": message, "gemini": generated}[provider](text)
    where, key = {
        "openai": ("usage", "completion_tokens"),
        "anthropic": ("usage", "output_tokens"),
        "gemini": ("usageMetadata", "candidatesTokenCount"),
    }[provider]
    if tokens_out is None:
        del made[where]
    else:
        made[where] |= {key: tokens_out}
    return made


def cost_usd(tokens_out, *, halves_cache):
    return (60 * 1.0 + tokens_out * 4.0 + 40 * (0.1 if halves_cache else 0.2)) / 1e6


@pytest.mark.parametrize("name", ["openai", "anthropic", "gemini"])
@pytest.mark.parametrize("first", [True, False])
def test_of_two_answers_to_one_call_the_dearer_one_is_booked(provider, tmp_path, name, first):
    made = loaded(provider.url, (name,), depth=1)
    few, many = (counted(name, text, tokens) for text, tokens in (("few", 1), ("many", 90)))
    provider.answer = lambda model, prompt: "many"
    provider.spoil = lambda model, prompt: many if first else few
    provider.says_also = lambda custom_id, model, prompt: [(custom_id, few if first else many), (custom_id, few)]
    result = run(made, tmp_path / "s.db")
    rows = rows_of(tmp_path / "s.db").values()
    assert rows
    for row in rows:
        assert (row.failure, row.tokens_out) == (None, 90)
        assert row.cost_usd == pytest.approx(cost_usd(90, halves_cache=name == "anthropic"))
    assert result.committed_usd == pytest.approx(sum(row.cost_usd for row in rows))


@pytest.mark.parametrize("name", ["openai", "anthropic", "gemini"])
@pytest.mark.parametrize("also", ["errored", "expired", "uncounted", "broken"])
def test_an_answer_beats_an_error_and_a_second_one_without_counts_is_booked_at_its_bound(provider, tmp_path, name, also):
    made = loaded(provider.url, (name,), depth=1)
    other = {"uncounted": counted(name, "paris", None), "broken": {"id": "x"}}.get(also, also)
    provider.says_also = lambda custom_id, model, prompt: [(custom_id, other)]
    run(made, tmp_path / "s.db")
    for row in rows_of(tmp_path / "s.db").values():
        assert row.failure is None
        usual_usd = cost_usd(10, halves_cache=name == "anthropic")
        is_bound = also in ("uncounted", "broken")
        assert row.tokens_estimated == is_bound
        assert row.cost_usd == pytest.approx(usual_usd) if not is_bound else row.cost_usd > 5 * usual_usd
    assert not provider.at_once


@pytest.mark.parametrize("name", ["openai", "anthropic", "gemini"])
def test_answers_to_calls_that_were_never_sent_are_ignored_and_said(provider, tmp_path, name, caplog):
    made = loaded(provider.url, (name,), depth=1)
    provider.says_also = lambda custom_id, model, prompt: [("0ther-call", None), (custom_id[:-1] + "z", None)]
    run(made, tmp_path / "s.db")
    rows = rows_of(tmp_path / "s.db").values()
    assert all(row.cost_usd == pytest.approx(cost_usd(10, halves_cache=name == "anthropic")) for row in rows)
    assert "calls that were never sent: they are ignored" in caplog.text


@pytest.mark.parametrize("status", ["paused", "COMPLETING"])
@pytest.mark.parametrize("name", ["openai", "gemini"])
def test_a_batch_goes_on_whose_status_nobody_knows(provider, tmp_path, name, status):
    made = loaded(provider.url, (name,), depth=1)
    provider.status = status
    with pytest.raises(VineLMError, match="has not ended after"):
        run(made, tmp_path / "s.db", settings(times=replace(QUICK, wait_s=0.5)))
    bought = provider.bought.copy()
    provider.status = None
    run(made, tmp_path / "s.db")
    assert provider.bought == bought
    assert all(row.failure is None for row in rows_of(tmp_path / "s.db").values())


@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_one_line_that_is_no_result_leaves_the_others_with_theirs(provider, tmp_path, name):
    made = loaded(provider.url, (name,), depth=1)
    provider.spoil = lambda model, prompt: "garbled" if "number 1" in prompt else None
    run(made, tmp_path / "s.db")
    rows = rows_of(tmp_path / "s.db")
    assert [request for (request, _), row in rows.items() if row.failure] == ["q1"]


def test_a_batch_that_failed_and_says_that_it_answered_calls_may_be_billed_for_them(provider, tmp_path):
    made = loaded(provider.url, ("openai",), depth=1)
    provider.status, provider.completed = "failed", 2
    result = run(made, tmp_path / "s.db")
    rows = rows_of(tmp_path / "s.db").values()
    assert all(row.failure == "rate_limit" and row.cost_usd > 0 for row in rows)
    assert result.committed_usd == pytest.approx(sum(row.cost_usd for row in rows))


@pytest.mark.parametrize("name", ["openai", "anthropic"])
@pytest.mark.parametrize("how", ["expired", "errored"])
def test_a_batch_that_counts_more_answers_than_it_gives_may_be_billed_for_what_it_calls_failed(provider, tmp_path, name, how):
    made = loaded(provider.url, (name,), depth=1)
    provider.spoil = lambda model, prompt: how if "number 1" in prompt else None
    provider.completed = 3
    run(made, tmp_path / "s.db")
    rows = rows_of(tmp_path / "s.db")
    assert {request: row.failure for (request, _), row in rows.items()} == {"q0": None, "q1": SPOILED[how], "q2": None}
    assert all(row.cost_usd > 0 for row in rows.values())


@pytest.mark.parametrize(("name", "status"), [("openai", "expired"), ("openai", "cancelled"), ("anthropic", None)])
def test_a_line_of_a_call_that_cannot_be_read_may_be_billed(provider, tmp_path, name, status):
    made = loaded(provider.url, (name,), depth=1)
    provider.spoil = lambda model, prompt: "odd" if "number 1" in prompt else None
    provider.status = status
    run(made, tmp_path / "s.db")
    rows = rows_of(tmp_path / "s.db")
    (odd,) = [row for (request, _), row in rows.items() if request == "q1"]
    assert odd.failure == "malformed"
    assert odd.cost_usd > max(row.cost_usd for (request, _), row in rows.items() if request != "q1")


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_batch_of_ours_is_found_although_our_clock_had_leapt_when_it_was_recorded(provider, name):
    api, model = BACKENDS[name](), entry("m0", name, provider.url)
    content = {"contents": [{"role": "user", "parts": [{"text": "?"}]}], "config": {}}
    body = {"model": "model-m0", "messages": [{"role": "user", "content": "?"}], "max_tokens": 9}
    calls = {f"mine-{k:040}": content if name == "gemini" else body for k in range(2)}
    ours = api.submit(model, "mine", calls)
    api.submit(model, "newer", {key.replace("mine", "newer"): one for key, one in calls.items()})
    assert api.find(model, "mine", time.time() + 10 * 86_400.0, 2, frozenset()).provider_id == ours
    api.close()
