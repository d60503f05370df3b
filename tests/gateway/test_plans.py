"""Plans over the gateway: the step, the request that calls belong to, its caps, and models that stand in."""

import json
from dataclasses import replace

import numpy as np
import openai
import pytest
from kit.servers.gateways import ASKED, catalog_of, running
from kit.wire.openai_format import answering, problem

from vinelm import AnnotatedTrie, Objective
from vinelm.errors import ConfigError
from vinelm.gateway import KeyBook
from vinelm.template import Stage, Template
from vinelm.trie import Trie
from vinelm.trie.verdict import ComparedPlan, Verdict

CHEAP = Objective(minimize="cost")
GOOD = Objective(maximize="accuracy")
CAPPED = {"maximize": "accuracy", "max_cost_usd": 0.0045, "cost_budget": "per_request"}


def planned(catalog, steps=("draft", "check")):
    """Over two steps: "big" is right more often, and costs ten times as much."""
    template = Template(tuple(Stage(step) for step in steps)).bind(tuple(catalog))
    trie = Trie.from_template(template)
    depth = np.asarray(trie.depth, float)
    bigs = np.array([sum(catalog_name == "big" for catalog_name in trie.prefix(node)) for node in range(len(trie))], float)
    inside = depth > 0
    right = np.where(inside, 0.5 + 0.2 * bigs, 0.0)
    stops = np.where(depth == len(steps), 1.0, 0.0)
    usd = np.where(inside, 0.0001 + 0.001 * np.array([list(trie.prefix(n))[-1:] == ["big"] for n in range(len(trie))]), 0.0)
    seconds = np.where(inside, 0.1, 0.0)
    return AnnotatedTrie(trie, template, catalog, right, stops, right * stops, usd, 0 * seconds, seconds, seconds / 9)


@pytest.fixture
def catalog(upstream):
    return catalog_of(upstream.url, max_tokens=100)


def served(upstream):
    return [asked.json["model"] for asked in upstream.asked]


@pytest.mark.parametrize(("objective", "model"), [(CHEAP, "small-1"), (GOOD, "big-1")])
def test_the_plan_chooses_the_model_of_a_step(upstream, catalog, objective, model):
    with running(catalog, trie=planned(catalog), objective=objective) as gateway:
        for how in ({"model": "vinelm/draft"}, {"headers": {"x-vinelm-step": "draft"}}):
            assert gateway.ask(**how).choices[0].message.content == "four"
        with gateway.client() as client:
            assert [model.id for model in client.models.list()] == ["big", "small", "vinelm/check", "vinelm/draft"]
    assert served(upstream) == [model, model]


def test_a_call_may_say_what_to_plan_for(upstream, catalog):
    with running(catalog, trie=planned(catalog), objective=GOOD) as gateway:
        gateway.ask(model="vinelm/draft", headers={"x-vinelm-objective": json.dumps({"minimize": "cost"})})
    assert served(upstream) == ["small-1"]


def test_a_step_is_known_by_the_beginning_of_its_prompt(upstream, catalog):
    asked = [{"role": "system", "content": "You draft answers, in one line."}, *ASKED]
    with running(catalog, trie=planned(catalog), objective=CHEAP, steps={asked[0]["content"]: "draft"}) as gateway:
        gateway.ask(messages=asked)
        gateway.ask()  # a step that the plan does not know runs on the model that is named
    assert served(upstream) == ["small-1", "big-1"]


def test_calls_of_one_request_are_one_path(upstream, catalog):
    """The second step is planned behind the first; a request of another name begins anew."""
    with running(catalog, trie=planned(catalog), objective=CHEAP) as gateway:
        for request in ("r1", "r1", "r2"):
            step = "draft" if (request, len(upstream.asked)) != ("r1", 1) else "check"
            answer = gateway.client().chat.completions.with_raw_response.create(
                model=f"vinelm/{step}", messages=ASKED, extra_headers={"x-vinelm-request": request}
            )
            assert answer.headers["x-vinelm-request"] == request
            assert answer.headers["x-vinelm-model"] == "small"
        paths = [
            gateway.gateway.vine.adapter.finder.runs._kept[id(found.context)].path
            for found in gateway.gateway._requests._named.values()
        ]
    assert paths == [("small", "small"), ("small",)]


def test_a_cap_of_a_request_holds_over_its_calls(upstream, catalog):
    """Each call may cost $0.0021 and more; the third one does not fit any more, whatever the client does."""
    with running(catalog, trie=planned(catalog), objective=Objective(**CAPPED)) as gateway:
        headers = {"x-vinelm-request": "r1"}
        codes = []
        for step in ("draft", "check", *["check"] * 60):
            try:
                gateway.ask(model=f"vinelm/{step}", headers=headers)
            except openai.APIStatusError as error:
                codes.append((error.status_code, error.code))
                break
        assert codes == [(402, "budget_exceeded")]
        assert len(upstream.asked) * 8.28e-5 <= CAPPED["max_cost_usd"]
        assert gateway.ask(model="vinelm/draft", headers={"x-vinelm-request": "r2"}).choices[0].message.content == "four"


def test_another_model_answers_after_a_failure_of_the_planned_one(upstream, catalog):
    good = answering("four")

    async def reply(asked, out):
        if asked.json["model"] == "big-1":
            return await out.whole(problem("overloaded", "busy"), status=503)
        return await good(asked, out)

    upstream.answers(reply)
    with running(catalog, trie=planned(catalog), objective=GOOD) as gateway:
        assert gateway.ask(model="vinelm/draft").choices[0].message.content == "four"
        with gateway.client() as client:
            pieces = list(client.chat.completions.create(model="vinelm/draft", messages=ASKED, stream=True))
        assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == "four"
        with pytest.raises(openai.InternalServerError):  # the model that a client names is the one that he gets
            gateway.ask(model="big")
    assert served(upstream) == ["big-1", "small-1"] * 2 + ["big-1"]


def test_a_limit_is_named_as_the_chosen_models_server_names_it(upstream, catalog):
    with running(catalog, trie=planned(catalog), objective=CHEAP) as gateway:
        gateway.ask(model="big", headers={"x-vinelm-step": "draft"}, max_completion_tokens=50)
    assert upstream.asked[0].json["max_tokens"] == 50
    assert "max_completion_tokens" not in upstream.asked[0].json


def test_a_plan_without_a_verdict_needs_an_objective(upstream, catalog):
    with pytest.raises(ConfigError, match="say what to plan for"), running(catalog, trie=planned(catalog)):
        pass


def test_a_plan_that_is_loaded_later_brings_its_steps_and_its_objective(upstream, catalog):
    """As after `vinelm estimate` has written the file of a running gateway anew."""

    def judged(usd):
        plan = ComparedPlan(
            policy="paths", cost_usd=usd, cap_usd=usd, gain=0.05, gain_low=0.02, gain_high=0.08, best_low=0.02,
            best_high=0.08, saved_usd=0.01, saved_low=0.005, saved_high=0.02, is_same=False, is_identified=True,
        )  # fmt: skip
        return replace(planned(catalog), verdict=Verdict(cost_usd=1.0, plans=[plan]))

    with running(catalog) as gateway:
        gateway.ask(model="vinelm/draft")
        for usd in (0.0003, 0.01):
            gateway.gateway.vine.load(judged(usd))
            gateway.ask(model="vinelm/draft")
        with gateway.client() as client:
            assert "vinelm/check" in {model.id for model in client.models.list()}
    assert served(upstream) == ["big-1", "small-1", "big-1"]


def test_rows_of_planned_requests_are_kept_apart_by_tenant(upstream, catalog, tmp_path):
    book = KeyBook(tmp_path / "keys.db")
    keys = [book.add(name) for name in ("acme", "bert")]
    sessions = []
    with running(catalog, trie=planned(catalog), objective=CHEAP, keys=book) as gateway:
        new = gateway.gateway.vine.session

        def session(*args, **given):
            sessions.append(given["configurable"]["tenant"])
            return new(*args, **given)

        gateway.gateway.vine.session = session
        for key in keys:
            gateway.ask(key, model="vinelm/draft", headers={"x-vinelm-request": "r"})
    assert sessions == ["acme", "bert"]
    book.close()
