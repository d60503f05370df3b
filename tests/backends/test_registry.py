import datetime

import pytest

from vinelm.backends import PROVIDERS, TextWriter, create_backends
from vinelm.backends.offline.presets import simulated_catalog, simulated_tables
from vinelm.catalog import Catalog, Model, Price
from vinelm.errors import ConfigError
from vinelm.requests.workflow import Request, Workflow
from vinelm.template import Stage, Template

KNOWN = ", ".join(PROVIDERS)


def make_workflow(*, writer=None, labels=("answer",), data=None):
    return Workflow(
        name="w",
        template=Template((Stage("s"),)),
        build=lambda vine: None,
        requests=[Request("1", data or {"question": "2 + 2?", "answer": 4})],
        score=lambda request, state: False,
        labels=labels,
        writer=writer,
    )


def with_settings(**tables):
    return Catalog.from_dict({**simulated_tables("paper-2"), "backend": tables})


def test_makes_one_backend_per_provider(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("question_id,model,prediction\n1,a,x\n")
    price = Price(input=0, output=0, source="s", as_of=datetime.date(2026, 1, 1))
    recorded = Model(name="r", provider="recorded", model_id="a", engine="e", price=price)
    served = Model(name="o", provider="openai", model_id="a", engine="f", api_base="http://127.0.0.1:9/v1", price=price)
    catalog = Catalog([*simulated_catalog("paper-2").models, recorded, served], {"recorded": {"table": str(table)}})
    backends = create_backends(catalog, workflow=make_workflow(), real_time=True)
    assert list(backends) == ["simulated", "recorded", "openai"]
    assert not any(backend.is_virtual_time for backend in backends.values())
    assert set(backends) < set(PROVIDERS)


def test_settings_override_arguments(make_call):
    workflow = make_workflow()
    request = workflow.requests[0]

    def usage(catalog, seed):
        backend = create_backends(catalog, workflow=workflow, seed=seed)["simulated"]
        return backend.answer(catalog["sim-sonnet"], make_call(request, "sim-sonnet")[0], 100)[1]

    plain, fixed = with_settings(), with_settings(simulated={"seed": 5})
    assert usage(plain, 5) == usage(fixed, 1) != usage(plain, 1)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"simulated": {"sede": 1}}, r"^\[backend.simulated\]: unknown key 'sede' \(did you mean 'seed'\?\): known keys are seed, real_time"),
        ({"simulated": {"seed": "1"}}, r"^\[backend.simulated\]: seed is '1': expected int$"),
        ({"simulated": {"seed": True}}, r"seed is True: expected int"),
        ({"simulated": {"failure_rate": 2}}, r"failure_rate is 2.0: it must be a number from 0 to 1"),
        ({"simulated": {"answer_key": "label"}}, r"have no 'label': set answer_key .* question, answer"),
        ({"recorded": {}}, r"^\[backend.recorded\] has no effect: no model of the catalog has provider = 'recorded'"),
        ({"opnai": {}}, rf"^\[backend.opnai\]: unknown provider 'opnai' \(did you mean 'openai'\?\): known are {KNOWN}$"),
    ],
)
def test_bad_settings(tables, message):
    with pytest.raises(ConfigError, match=message):
        create_backends(with_settings(**tables), workflow=make_workflow())


def changed(**update):
    models = simulated_catalog("paper-2").models
    return Catalog([models[0].model_copy(update=update), models[1]])


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (
            {"provider": "closedai"},
            rf"model 'sim-gemma-27b': unknown provider 'closedai': known are {KNOWN}",
        ),
        ({"model_id": "gemini"}, r"model 'sim-gemma-27b': no simulated model 'gemini': known are gemma-27b, sonnet"),
        ({"options": {"temperature": 1}}, r"unknown option 'temperature': simulated models take failure_rate"),
        ({"options": {"failure_rate": "often"}}, r"model 'sim-gemma-27b': failure_rate is 'often'"),
    ],
)
def test_bad_models(update, message):
    with pytest.raises(ConfigError, match=message):
        create_backends(changed(**update), workflow=make_workflow())


def test_recorded_needs_a_table():
    catalog = changed(provider="recorded")
    with pytest.raises(ConfigError, match=r'^\[backend.recorded\]: no table: add table = "answers.csv"$'):
        create_backends(Catalog(catalog.models[:1]))


def test_simulated_needs_to_know_the_right_answer():
    with pytest.raises(ConfigError, match="give create_backends a workflow"):
        create_backends(simulated_catalog())
    with pytest.raises(ConfigError, match=r"workflow 'w': simulated models need the right answer"):
        create_backends(simulated_catalog(), workflow=make_workflow(labels=(), data={"question": "?"}))
    backends = create_backends(simulated_catalog(), workflow=make_workflow(labels=("gold",), data={"gold": "x"}))
    assert list(backends) == ["simulated"]
    with pytest.raises(ConfigError, match=r"answer_key has no effect: workflow 'w' has its own writer"):
        create_backends(with_settings(simulated={"answer_key": "a"}), workflow=make_workflow(writer=TextWriter()))


REMOTE = sorted(set(PROVIDERS) - {"recorded", "simulated"})
OPTIONS = {"azure": {"api_version": "2025-01-01"}, "vertex": {"project": "p"}}


@pytest.mark.parametrize("provider", REMOTE)
def test_every_remote_backend_shows_its_limits(provider):
    """A profile in child processes holds its units back by them: a child knows of no other child's calls."""
    price = Price(input=0, output=0, source="s", as_of=datetime.date(2026, 1, 1))
    fields = {"name": "m", "provider": provider, "model_id": "x:y", "engine": "e", "price": price}
    model = Model(**fields, api_base="http://127.0.0.1:9/v1", options=OPTIONS.get(provider, {}))
    (backend,) = create_backends(Catalog([model], {provider: {"limits": {"e": {"concurrency": 3}}}})).values()
    assert list(backend.rate_limiters) == ["e"]
    assert backend.rate_limiters["e"]._free == 3


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"service_tier": "priority"}, "service_tier = 'priority'"),
        ({"extra_body": {"service_tier": "priority"}}, "service_tier = 'priority'"),
        ({"speed": "fast"}, "speed = 'fast'"),
        ({"performance_config": {"latency": "optimized"}}, "performance_config = 'optimized'"),
    ],
)
@pytest.mark.parametrize("looked_up", [{"price_id": "openai/gpt-5"}, {"source": "genai-prices"}])
def test_a_dearer_service_needs_a_price_of_its_own(options, says, looked_up):
    """The list price is that of the ordinary service: the call would be booked at half of what it costs."""

    def model(source, price_id=None):
        price = Price(input=1, output=2, source=source, as_of=datetime.date(2026, 1, 1))
        fields = {"name": "m", "provider": "openai", "model_id": "gpt-5", "engine": "e", "price": price, "options": options}
        return Model(**fields, api_base="http://127.0.0.1:9/v1", price_id=price_id)

    listed = model(looked_up.get("source", "s"), looked_up.get("price_id"))
    with pytest.raises(ConfigError, match=f"model 'm': {says} costs more than the list price") as raised:
        create_backends(Catalog([listed]))
    assert "\n" not in str(raised.value)
    assert create_backends(Catalog([model("my contract")]))
