"""Dollars that are promised and dollars that are paid where a provider has a prompt cache, at several rates of requests.

    python scripts/bench_prompt_cache.py --calls-per-hour 6 60 600

Models are simulated, prices are made up, and so is the provider, which keeps to the real rules on a virtual clock: a prompt is
read from the cache up to the longest prefix of whole blocks of 128 tokens, from 1,024 tokens on, that the same model has seen
within the last 300 seconds; each use keeps it for as long again. "automatic" charges nothing for writing. "written" charges
1.25 times the input for what is written. A graph generates, checks and repairs twice at most; the prompt of each stage is 2,000
tokens that are the same for all requests, then the request and its answers. The profile makes calls every half second. Then
two plans that keep their model and one that switches serve the same requests, each once, which come at random.
"""

from __future__ import annotations

import hashlib
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from studies import Options, study

from vinelm import AnnotatedTrie, Objective, VineLM, estimate
from vinelm.backends import OfflineChatModel
from vinelm.backends.offline.chat_model import request_of
from vinelm.catalog import Catalog, Model, Price
from vinelm.clock import VirtualClock
from vinelm.estimator import make_estimator
from vinelm.policies.fixed import StaticPolicy
from vinelm.profiler import ProfileSettings, profile
from vinelm.profiler.execution.fingerprint import store_identity
from vinelm.requests.workflow import Request, Workflow
from vinelm.rows.observation import Usage
from vinelm.template import Loop, Stage, Template
from vinelm.traces import ObservationStore

OTHERS = 5
"""Requests that come before the counted ones, so that these do not find a new service."""
LEAST, BLOCK, TTL_S = 1024, 128, 300.0
STATIC, ANSWER = 2000, 60
RIGHT = {"small": 0.5, "large": 0.8}
INPUT = {"small": 0.4, "large": 2.0}
PLANS = (("small", "small", "small"), ("large", "large", "large"), ("small", "large", "large"))


class State(TypedDict, total=False):
    """The graph's state."""

    question: str
    answer: str


def share_of(*names: str) -> float:
    """A number in [0, 1) that the names decide."""
    return int.from_bytes(hashlib.sha256("/".join(names).encode()).digest()[:4], "big") / 2**32


@dataclass
class CachingProvider:
    """A backend with a prompt cache. Its clock is that of all calls together; each takes ``call_s``."""

    is_writing_charged: bool
    call_s: float = 0.5
    now_s: float = 0.0
    spent_usd: float = 0.0
    calls: int = 0
    is_simulated = True
    is_virtual_time = True
    used_s: dict[tuple[str, int], float] = field(default_factory=dict)

    def chat_model(self, model: Model, call: Any) -> OfflineChatModel:
        """See :class:`vinelm.requests.protocols.Backend`."""
        return OfflineChatModel.bound(self, model, call)

    def answer(self, model: Model, call: Any, prompt_chars: int) -> tuple[str, Usage]:
        """See :class:`vinelm.backends.offline.chat_model.AnswerSource`."""
        request = request_of(call, "bench")
        prompt = prompt_of(request.id, call.stage, call.prefix)
        cached, written = self.read(model.model_id, prompt)
        cost = model.price.cost_usd(len(prompt), ANSWER, cached, written if self.is_writing_charged else 0)
        self.now_s += self.call_s
        self.spent_usd += cost
        self.calls += 1
        usage = Usage(
            model=model.name,
            cost_usd=cost,
            latency_s=self.call_s,
            tokens_in=len(prompt),
            tokens_out=ANSWER,
            tokens_cached=cached,
        )
        return ("right" if is_right(request.id, call.prefix) else "wrong"), usage

    def read(self, model_id: str, prompt: Sequence[str]) -> tuple[int, int]:
        """The tokens that are read from the cache, and those that are written to it."""
        ends = [end for end in range(BLOCK, len(prompt) + 1, BLOCK) if end >= LEAST]
        keys = {end: (model_id, hash(tuple(prompt[:end]))) for end in ends}
        warm = [end for end in ends if self.now_s - self.used_s.get(keys[end], -1e9) <= TTL_S]
        for key in keys.values():
            self.used_s[key] = self.now_s
        cached = max(warm, default=0)
        return cached, max(ends, default=cached) - cached


def prompt_of(request_id: str, stage: str, prefix: Sequence[str]) -> list[str]:
    """The prompt's tokens: what the stage says to everybody, the request, and its answers so far."""
    question = [f"{request_id}:{i}" for i in range(100 + int(400 * share_of("length", request_id)))]
    answers = [f"{request_id}:{'/'.join(prefix[:k])}:{i}" for k in range(1, len(prefix)) for i in range(ANSWER)]
    return [*(f"{stage}:{i}" for i in range(STATIC)), *question, *answers]


def is_right(request_id: str, prefix: Sequence[str]) -> bool:
    hard = share_of("hard", request_id)
    return 0.5 * hard + 0.5 * share_of(request_id, *prefix) < RIGHT[prefix[-1]] - 0.1


def ask(state: State, model: Any) -> State:
    return {"answer": model.invoke(state["question"]).text}


def build(vine: Any) -> Any:
    from langgraph.graph import END, START, StateGraph

    graph: Any = StateGraph(State)
    for stage in ("generate", "repair"):
        graph.add_node(stage, vine.stage(stage, ask))
    again = vine.route(lambda state: state["answer"] == "right", again="repair", end=END)
    graph.add_edge(START, "generate")
    graph.add_conditional_edges("generate", again, ["repair", END])
    graph.add_conditional_edges("repair", again, ["repair", END])
    return graph


def made_up(name: str, *, is_writing_charged: bool) -> Model:
    rate = INPUT[name]
    price = Price.model_validate(
        {
            "input": rate,
            "output": 4 * rate,
            "cached": rate / 10,
            **({"cache_write": 1.25 * rate} if is_writing_charged else {}),
            "source": "made up",
            "as_of": "2026-01-01",
        }
    )
    return Model(name=name, provider="bench", model_id=name, engine="bench", max_tokens=100, price=price)


@dataclass(frozen=True)
class Bench:
    """The application, its models, the provider and the store of the profile."""

    workflow: Workflow
    catalog: Catalog
    provider: CachingProvider
    store: Path

    @classmethod
    def profiled(cls, store: Path, *, is_writing_charged: bool, requests: int, coverage: float) -> Bench:
        """Profile the application into a new store."""
        names = tuple(RIGHT)
        workflow = Workflow(
            name="prompt-cache",
            template=Template((Stage("generate", names), Loop((Stage("repair", names),), 2))),
            build=build,
            requests=[Request(f"q{i:04d}", {"question": f"number {i}"}) for i in range(requests)],
            score=lambda request, state: state["answer"] == "right",
        )
        catalog = Catalog(made_up(name, is_writing_charged=is_writing_charged) for name in names)
        provider = CachingProvider(is_writing_charged)
        backends = {"bench": provider}
        with ObservationStore.create(store, store_identity(workflow, catalog, backends)) as opened:
            profile(workflow, catalog, backends, opened, ProfileSettings(coverage=coverage, budget_usd=1e6))
        return cls(workflow, catalog, provider, store)

    def as_charged(self) -> AnnotatedTrie:
        """The estimate that takes the profile's dollars as they are."""
        with ObservationStore.open(self.store) as opened:
            rows = opened.observations()
        return make_estimator("latent").fit(rows, self.workflow.template, self.catalog).annotated_

    def served_usd(self, plan: Sequence[str], calls_per_hour: float, seed: int = 0) -> float:
        """Mean dollars of the profiled requests under a plan, if they come at random, once each, after some others."""
        provider, draw = self.provider, random.Random(seed)
        vine = VineLM(self.catalog, {"bench": provider}, template=self.workflow.template, labelled=True)
        app = self.workflow.build(vine).compile()
        requests = draw.sample(self.workflow.requests, len(self.workflow.requests))
        provider.now_s += 1e6
        comes_s, before_usd = provider.now_s, provider.spent_usd
        for number, request in enumerate([*(Request(f"other{i}", {"question": "?"}) for i in range(OTHERS)), *requests]):
            comes_s += draw.expovariate(calls_per_hour / 3600.0)
            provider.now_s = max(provider.now_s, comes_s)
            if number == OTHERS:
                before_usd = provider.spent_usd
            policy = StaticPolicy(self.workflow.template, plan, clock=VirtualClock(), request=request)
            app.invoke({"question": "?"}, context=vine.context(Objective(maximize="accuracy"), policy=policy, request=request))
        return (provider.spent_usd - before_usd) / len(requests)


def promised_usd(trie: AnnotatedTrie, plan: Sequence[str]) -> float:
    """Dollars of a request that follows the plan until an answer passes."""
    return float(trie.path_cost_usd[trie.trie.node(plan)])


def main() -> int:
    options = {"--calls-per-hour": ([6.0, 60.0, 600.0], ""), "--requests": (300, ""), "--coverage": (0.3, "")}
    return study(__doc__, options, measured)


def measured(options: Options) -> dict[str, Any]:
    options.say("cache      calls/h  plan                 served $/1000  as charged  promised   (ratios: served / promise)")
    rows = []
    for is_writing_charged in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench.profiled(
                Path(folder) / "bench.db", is_writing_charged=is_writing_charged, requests=options.requests,
                coverage=options.coverage,
            )  # fmt: skip
            charged = bench.as_charged()
            for rate in options.calls_per_hour:
                trie = estimate(bench.store, check=False, calls_per_hour=rate)
                for plan in PLANS:
                    served, kind = bench.served_usd(plan, rate), "written" if is_writing_charged else "automatic"
                    before, now = served / promised_usd(charged, plan), served / promised_usd(trie, plan)
                    options.say(f"{kind:9s} {rate:8g}  {'/'.join(plan):19s} {1000 * served:14.4f} {before:11.3f} {now:9.3f}")
                    row = {"cache": kind, "calls_per_hour": rate, "plan": plan, "served_usd": served}
                    rows.append(row | {"as_charged": before, "promised": now})
    return {"rows": rows}


if __name__ == "__main__":
    sys.exit(main())
