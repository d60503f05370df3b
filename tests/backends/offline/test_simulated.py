import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest
from langchain_core.messages import HumanMessage

from vinelm.backends.offline.presets import BEHAVIOURS, simulated_catalog
from vinelm.backends.offline.simulated import SimulatedBackend, create
from vinelm.backends.settings import ProviderSettings
from vinelm.catalog import Catalog
from vinelm.clock import WallClock
from vinelm.errors import CallError, ConfigError
from vinelm.requests.protocols import Backend
from vinelm.workflows.nl2sql.simulated_writer import SqlWriter

PROMPT = [HumanMessage("x" * 2000)]
CATALOG = simulated_catalog()


@pytest.fixture(scope="module")
def backend(databases):
    return SimulatedBackend(SqlWriter(databases), seed=3)


@pytest.fixture
def text_of(make_call):
    def answer(backend, request, *prefix):
        return backend.answer(CATALOG[prefix[-1]], make_call(request, *prefix)[0], 2000)

    return answer


@pytest.fixture(scope="module")
def outcomes(backend, judge, requests):
    """{prefix: the ids of the requests that it gets right}, prefixes of length 1 and 2, each answered by execution."""
    from vinelm.clock import VirtualClock
    from vinelm.requests.protocols import CallContext

    def right(prefix):
        clock = VirtualClock()
        for request in requests:
            call = CallContext(stage="s", prefix=prefix, clock=clock, on_usage=lambda usage: None, request=request)
            if judge.is_right(request, backend.answer(CATALOG[prefix[-1]], call, 2000)[0]):
                yield request.id

    names = tuple(CATALOG)
    return {prefix: set(right(prefix)) for k in (1, 2) for prefix in product(names, repeat=k)}


def test_is_a_backend(backend):
    assert isinstance(backend, Backend)
    assert backend.is_simulated
    assert backend.is_virtual_time


@pytest.mark.long
def test_every_model_is_in_the_literatures_range(outcomes, requests):
    accuracy = {name: len(outcomes[name,]) / len(requests) for name in CATALOG}
    assert all(0.35 < value < 0.9 for value in accuracy.values()), accuracy
    dear = max(CATALOG, key=lambda name: CATALOG[name].price.output)
    assert max(accuracy, key=accuracy.__getitem__) == dear


@pytest.mark.long
def test_the_best_model_is_not_the_best_everywhere(outcomes):
    dear = max(CATALOG, key=lambda name: CATALOG[name].price.output)
    others = set().union(*(outcomes[name,] for name in CATALOG if name != dear))
    assert len(others - outcomes[dear,]) > 10


def test_repeating_a_model_helps_little_and_another_model_more(outcomes, requests):
    ids = {request.id for request in requests}
    repeated, switched = [], []
    for a, b in product(CATALOG, repeat=2):
        failed = ids - outcomes[a,]
        share = len(failed & outcomes[a, b]) / len(failed)
        (repeated if a == b else switched).append(share)
    mean_repeated, mean_switched = sum(repeated) / len(repeated), sum(switched) / len(switched)
    assert mean_repeated < 0.35
    assert mean_switched > mean_repeated + 0.15


def test_related_models_fail_together(outcomes, requests):
    ids = {request.id for request in requests}

    def rescue(a, b):
        return len((ids - outcomes[a,]) & outcomes[b,]) / len(ids - outcomes[a,])

    mixture = [name for name in CATALOG if BEHAVIOURS[CATALOG[name].model_id].family == "mixture"]
    related = [rescue(a, b) for a, b in product(mixture, repeat=2) if a != b]
    unrelated = [rescue(a, b) for a in CATALOG if a not in mixture for b in mixture]
    assert sum(related) / len(related) < sum(unrelated) / len(unrelated) - 0.03


def test_a_visible_error_helps_the_repair(databases, requests, text_of, judge):
    """The same second call over the same requests, after an error that shows and after a silent one."""

    class OneKind(SqlWriter):
        def __init__(self, folder, kind):
            super().__init__(folder)
            self.kinds = (kind,)

    def rescued(kind):
        backend = SimulatedBackend(OneKind(databases, kind), seed=3)
        failed = [r for r in requests if not judge.is_right(r, text_of(backend, r, "sim-gemma-27b")[0])]
        return {r.id for r in failed if judge.is_right(r, text_of(backend, r, "sim-gemma-27b", "sim-glm")[0])}

    shown, silent = rescued("syntax_error"), rescued("missing_filter")
    assert len(shown) > len(silent)


def test_different_models_make_different_errors(backend, requests, text_of):
    def syntax_share(name):
        behaviour, tasks = BEHAVIOURS[CATALOG[name].model_id], [backend._task(r, "generate") for r in requests]
        kinds = [backend._error(task, behaviour, CATALOG[name].model_id, (name,)) for task in tasks]
        wrong = [kind for kind in kinds if kind]
        return sum(kind in ("syntax_error", "unknown_column") for kind in wrong) / len(wrong)

    assert syntax_share("sim-gemma-27b") > syntax_share("sim-sonnet") + 0.05


def test_the_seed_makes_another_world(databases, requests, text_of):
    one, two = (SimulatedBackend(SqlWriter(databases), seed=seed) for seed in (0, 1))
    assert [text_of(one, r, "sim-glm") for r in requests] != [text_of(two, r, "sim-glm") for r in requests]


def test_order_and_threads_do_not_matter(backend, databases, requests, text_of):
    pairs = [(r, (a, b)) for r in requests[:30] for a in list(CATALOG)[:3] for b in list(CATALOG)[:3]]
    straight = [text_of(backend, r, *p) for r, p in pairs]
    fresh = SimulatedBackend(SqlWriter(databases), seed=3)
    with ThreadPoolExecutor(4) as pool:
        turned = list(pool.map(lambda pair: text_of(fresh, pair[0], *pair[1]), reversed(pairs)))
    assert turned[::-1] == straight


CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
from conftest import make_requests
from vinelm.backends.offline.presets import simulated_catalog
from vinelm.backends.offline.simulated import SimulatedBackend, create
from vinelm.clock import VirtualClock
from vinelm.requests.protocols import CallContext
from vinelm.workflows.nl2sql.simulated_writer import SqlWriter
catalog, backend = simulated_catalog(), SimulatedBackend(SqlWriter(sys.argv[2]), seed=3)
for request in make_requests(12):
    for prefix in (("sim-glm",), ("sim-gemma-27b", "sim-sonnet"), ("sim-glm", "sim-glm", "sim-qwen-32b")):
        call = CallContext(stage="s", prefix=prefix, clock=VirtualClock(), on_usage=print, request=request)
        print(backend.answer(catalog[prefix[-1]], call, 1234))
"""


@pytest.mark.long
def test_another_process_gives_the_same_bits(databases, pytestconfig):
    def run(hash_seed):
        arguments = [sys.executable, "-c", CHILD, str(pytestconfig.rootpath / "tests" / "backends"), str(databases)]
        return subprocess.run(arguments, check=True, capture_output=True, env={"PYTHONHASHSEED": hash_seed}).stdout

    first = run("1")
    assert first.count(b"\n") == 36
    assert run("2") == first


def test_a_model_on_two_endpoints_knows_the_same(databases, requests, text_of, make_call):
    """The persistent effect belongs to the model, not to its catalog entry."""
    twin = CATALOG["sim-glm"].model_copy(update={"name": "glm-east", "engine": "east"})
    backend = SimulatedBackend(SqlWriter(databases), seed=3)
    agree = sum(
        (backend._error(backend._task(r, "generate"), BEHAVIOURS["glm"], "glm", ("sim-glm",)) is None)
        == (backend._error(backend._task(r, "generate"), BEHAVIOURS["glm"], twin.model_id, ("glm-east",)) is None)
        for r in requests
    )
    assert agree / len(requests) > 0.85


def test_one_usage_per_call_in_every_way_of_calling(backend, requests, make_call):
    model = CATALOG["sim-kimi-k2"]

    def run(use):
        call, usages = make_call(requests[0], model.name)
        text = use(backend.chat_model(model, call))
        (usage,) = usages
        return text, usage, call.clock.now()

    async def joined(chat):
        return "".join([chunk.text async for chunk in chat.astream(PROMPT)])

    ways = {
        "invoke": lambda chat: chat.invoke(PROMPT).text,
        "ainvoke": lambda chat: asyncio.run(chat.ainvoke(PROMPT)).text,
        "stream": lambda chat: "".join(chunk.text for chunk in chat.stream(PROMPT)),
        "astream": lambda chat: asyncio.run(joined(chat)),
    }
    results = {name: run(use) for name, use in ways.items()}
    text, usage, elapsed_s = results["invoke"]
    assert elapsed_s == usage.latency_s > 1.0
    for other_text, other_usage, other_elapsed_s in results.values():
        assert (other_text, other_usage) == (text, usage)
        assert other_elapsed_s == pytest.approx(elapsed_s)


def test_usage_is_complete(backend, requests, make_call):
    model = CATALOG["sim-sonnet"]
    call, usages = make_call(requests[0], model.name)
    message = backend.chat_model(model, call).invoke(PROMPT)
    (usage,) = usages
    assert usage.model == "sim-sonnet"
    assert usage.tokens_in == 500
    assert usage.tokens_estimated
    assert 0 < usage.ttft_s < usage.latency_s
    assert 0 < usage.tokens_reasoning < usage.tokens_out
    assert usage.cost_usd == model.price.cost_usd(usage.tokens_in, usage.tokens_out)
    assert usage.finish_reason == "stop"
    assert message.usage_metadata["total_tokens"] == usage.tokens_in + usage.tokens_out


def test_a_longer_prompt_costs_more_and_answers_the_same(backend, requests, make_call):
    call, _ = make_call(requests[0], "sim-glm")
    (text, short), (same, long) = (backend.answer(CATALOG["sim-glm"], call, chars) for chars in (400, 40_000))
    assert text == same
    assert long.cost_usd > short.cost_usd
    assert long.latency_s > short.latency_s


def test_an_abandoned_stream_is_paid_for(backend, requests, make_call):
    call, usages = make_call(requests[0], "sim-glm")
    stream = backend.chat_model(CATALOG["sim-glm"], call).stream(PROMPT)
    next(stream)
    stream.close()
    (usage,) = usages
    assert usage.finish_reason is None
    assert usage.cost_usd > 0


def test_real_time_waits_on_the_wall(databases, requests, make_call, monkeypatch):
    naps = []
    monkeypatch.setattr("vinelm.clock.time.sleep", naps.append)

    async def nap(seconds):
        naps.append(seconds)

    monkeypatch.setattr("vinelm.backends.offline.chat_model.asyncio.sleep", nap)
    backend = SimulatedBackend(SqlWriter(databases), seed=3, real_time=True)
    assert not backend.is_virtual_time
    call, usages = make_call(requests[0], "sim-glm", clock=WallClock())
    chat = backend.chat_model(CATALOG["sim-glm"], call)
    chat.invoke(PROMPT)
    asyncio.run(chat.ainvoke(PROMPT))
    assert naps == [usages[0].latency_s] * 2


@pytest.mark.parametrize("way", ["invoke", "stream", "ainvoke", "astream"])
def test_failed_calls_say_how(databases, requests, make_call, way):
    backend = SimulatedBackend(SqlWriter(databases), failure_rate=1.0)

    async def consume(chat):
        return [chunk async for chunk in chat.astream(PROMPT)]

    ways = {
        "invoke": lambda chat: chat.invoke(PROMPT),
        "stream": lambda chat: list(chat.stream(PROMPT)),
        "ainvoke": lambda chat: asyncio.run(chat.ainvoke(PROMPT)),
        "astream": lambda chat: asyncio.run(consume(chat)),
    }
    kinds = set()
    for request in requests[:12]:
        call, usages = make_call(request, "sim-glm")
        with pytest.raises(CallError) as caught:
            ways[way](backend.chat_model(CATALOG["sim-glm"], call))
        (usage,) = usages
        assert usage.failure == caught.value.kind
        assert call.clock.now() == usage.latency_s > 0
        kinds.add(usage.failure)
    assert kinds == {"rate_limit", "server", "timeout"}


def test_failure_rate_is_a_rate_and_a_model_may_have_its_own(databases, requests, make_call):
    backend = SimulatedBackend(SqlWriter(databases), failure_rate=0.3)
    sturdy = CATALOG["sim-glm"].model_copy(update={"options": {"failure_rate": 0.0}})

    def failures(model):
        return sum(backend.answer(model, make_call(r, "sim-glm")[0], 10)[1].failure is not None for r in requests)

    assert 0.2 < failures(CATALOG["sim-glm"]) / len(requests) < 0.4
    assert failures(sturdy) == 0


def test_without_a_request_it_says_what_to_do(backend, make_call):
    call, _ = make_call(None, "sim-glm")
    with pytest.raises(ConfigError, match=r"^stage 'generate': the simulated backend answers .* pass request=$"):
        backend.chat_model(CATALOG["sim-glm"], call)


def test_a_trace_does_not_show_the_label(backend, requests, make_call):
    """LangChain hands a model's serialised form to every tracer."""
    chat = backend.chat_model(CATALOG["sim-glm"], make_call(requests[0], "sim-glm")[0])
    assert "gold_sql" not in repr(chat) + str(chat._serialized) + str(chat._identifying_params) + str(chat.model_dump())


def test_a_prompt_cache_serves_what_follows_on_the_same_model_and_engine(databases, requests, make_call):
    price = CATALOG["sim-glm"].price.model_copy(update={"cached": 0.0})
    plain = CATALOG["sim-glm"].model_copy(update={"name": "plain", "price": price})
    models = {
        "plain": plain,
        "a": plain.model_copy(update={"name": "a", "options": {"cached_share": 0.5}}),
        "elsewhere": plain.model_copy(update={"name": "elsewhere", "engine": "other", "options": {"cached_share": 0.5}}),
    }
    backend = SimulatedBackend(SqlWriter(databases), catalog=Catalog(models.values()))

    def usage(*prefix):
        return backend.answer(models[prefix[-1]], make_call(requests[0], *prefix)[0], 40_000)[1]

    assert usage("plain", "plain").tokens_cached is None
    assert [usage(*prefix).tokens_cached for prefix in (("a",), ("elsewhere", "a"), ("plain", "a"))] == [0, 0, 5000]
    kept = usage("a", "a")
    assert kept.tokens_in == 10_000
    assert kept.cost_usd == pytest.approx(price.cost_usd(5000, kept.tokens_out))
    without = SimulatedBackend(SqlWriter(databases), catalog=Catalog([models["a"].model_copy(update={"options": {}})]))
    full = without.answer(without._catalog["a"], make_call(requests[0], "a", "a")[0], 40_000)[1]
    assert kept.ttft_s < full.ttft_s
    assert full.latency_s - kept.latency_s == pytest.approx(full.ttft_s - kept.ttft_s, abs=1e-5)


def test_what_is_cached_reaches_the_message(databases, requests, make_call):
    model = CATALOG["sim-glm"].model_copy(update={"options": {"cached_share": 1.0}})
    backend = SimulatedBackend(SqlWriter(databases), catalog=Catalog([model]))
    call, _ = make_call(requests[0], model.name, model.name)
    message = backend.chat_model(model, call).invoke(PROMPT)
    assert message.usage_metadata["input_token_details"] == {"cache_read": 500}


def test_a_cached_share_is_a_share():
    model = CATALOG["sim-glm"].model_copy(update={"options": {"cached_share": 1.5}})
    with pytest.raises(ConfigError, match=r"'sim-glm': cached_share is 1.5: it must be a number from 0 to 1"):
        create(ProviderSettings(provider="simulated", catalog=Catalog([model])))
