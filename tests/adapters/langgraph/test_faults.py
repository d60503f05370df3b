"""A defect of VineLM itself reaches no application; a cap holds all the same; what the application raises passes unchanged."""

import pytest
from hostile_parts import faults
from kit.apps.echo import App, EchoBackend
from kit.catalogs import make_catalog
from kit.tables import random_table
from kit.templates import make_template
from langchain_core.tracers import context as tracing

from vinelm import VineLM
from vinelm.controller import Planner, Session
from vinelm.errors import CallRefused, InfeasibleError
from vinelm.money.bound_guard import BoundGuard
from vinelm.money.spend_guard import SpendGuard
from vinelm.objective import Objective
from vinelm.rows.observation import Usage

OBJECTIVE = Objective(maximize="accuracy")
CAPPED = Objective(maximize="accuracy", max_cost_usd=1.0, cost_budget="per_request")


class DefectError(Exception):
    """Ours; its text may hold anything."""


@pytest.fixture(scope="module")
def annotated():
    return random_table(3, n_requests=60, n_models=3, depth=3).annotate()


def broken(*args, **kwargs):
    raise DefectError("the prompt and the key sk-canary")


def vine_of(annotated, **settings):
    return VineLM(annotated.catalog, {"test": settings.pop("backend", EchoBackend())}, trie=annotated, **settings)


def serve(vine, objective=OBJECTIVE, policy=None, **app):
    return App(**app).build(vine).compile().invoke({"q": "?"}, context=vine.context(objective, policy=policy))


@pytest.fixture
def no_watches():
    """Without what tools declared in other tests have registered with LangChain, which nothing here needs."""
    hooks = tracing._configure_hooks
    kept = list(hooks)
    hooks[:] = [hook for hook in kept if not hook[0].name.startswith("vinelm")]
    yield
    hooks[:] = kept


@pytest.mark.usefixtures("no_watches")
@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.long)])
def test_no_function_of_ours_that_raises_fails_an_application(every):
    """Found by running a request, so that a function written tomorrow is attacked, too."""
    found = faults.run(lambda line: None, calls=(1,), modes=("sync",), every=every)
    assert found["functions"] > 150 // every
    assert found["injected"] > 450 // every
    assert {key: found[key] for key in ("app_failures", "too_many_calls", "untold", "told_prompt")} == {
        "app_failures": [],
        "too_many_calls": [],
        "untold": [],
        "told_prompt": [],
    }


SESSION = ("__init__", "next_model", "record", "should_continue")


@pytest.mark.parametrize("method", SESSION)
def test_on_error_raise_raises(annotated, monkeypatch, method):
    monkeypatch.setattr(Session, method, broken)
    with pytest.raises(DefectError):
        serve(vine_of(annotated, on_error="raise"))


@pytest.mark.parametrize("method", ["next_model", "record", "should_continue"])
def test_the_trace_says_what_failed_by_the_type_of_the_error_only(annotated, monkeypatch, method):
    vine = vine_of(annotated)
    session = vine.session(OBJECTIVE)
    monkeypatch.setattr(Session, method, broken)
    assert serve(vine, policy=session)["a"].count(";") <= 3
    told = [step["note"] for step in session.trace() if step["kind"] == "failed"]
    assert told
    assert all(note == f"{method} failed (DefectError): default model" for note in told)


def test_a_loop_whose_policy_cannot_answer_stays_within_the_template(annotated, monkeypatch):
    monkeypatch.setattr(Session, "should_continue", broken)
    assert serve(vine_of(annotated), turns=1000)["a"].count(";") == annotated.template.depth


@pytest.mark.parametrize("where", ["session", "default"])
def test_what_the_application_raises_passes_unchanged(annotated, where):
    vine = vine_of(annotated)

    def inside(stage, state, model):
        raise DefectError("of the application")

    with pytest.raises(DefectError, match="of the application"):
        serve(vine, OBJECTIVE if where == "session" else None, inside=inside)


def test_a_bound_that_nothing_meets_is_raised_where_that_was_asked_for(annotated):
    with pytest.raises(InfeasibleError):
        serve(vine_of(annotated), Objective(maximize="accuracy", max_cost_usd=0.0, on_infeasible="raise"))


def test_observers_that_lack_methods_or_raise_anything_cost_nothing(annotated):
    class Odd(BaseException):
        """As test frameworks raise it."""

    class Loud:
        @property
        def captures_content(self):
            raise DefectError

        def decided(self, decided):
            raise Odd

        began = ended = decided

    vine = vine_of(annotated)
    vine.observe(object())
    vine.observe(Loud())
    assert serve(vine)["a"]


# -- money -----------------------------------------------------------------------------------------------------------


class Paid(EchoBackend):
    """Asks the guard for $0.3 a call, which it then costs."""

    def chat_model(self, model, call):
        made, take = super().chat_model(model, call), call.on_usage

        def on_usage(usage):
            if call.guard is not None:
                call.guard.authorize(0.3).settle(Usage(model=usage.model, cost_usd=0.3, latency_s=1.0))
            self.paid += 1
            take(usage)

        call.on_usage = on_usage
        return made

    paid = 0


@pytest.mark.parametrize(
    "defect", [(Session, "__init__"), (SpendGuard, "authorize"), (SpendGuard, "_settle"), (Session, "record")]
)
def test_a_cap_holds_whatever_fails(annotated, monkeypatch, defect):
    """Three calls of $0.3 fit into $1; five are asked for."""
    backend = Paid()
    vine = vine_of(annotated, backend=backend)
    monkeypatch.setattr(*defect, broken)

    def inside(stage, state, model):
        model.invoke("again")
        model.invoke("and again")

    with pytest.raises(CallRefused):
        serve(vine, CAPPED, inside=inside, turns=9)
    assert backend.paid == 3


def test_money_that_cannot_be_counted_is_not_spent():
    told = []
    guard = BoundGuard(SpendGuard(1.0), 1.0, lambda what, error: told.append((what, type(error).__name__)))
    first = guard.authorize(0.5)
    guard._guard.authorize = broken
    guard.authorize(0.3).close()
    assert told == [("guard.authorize", "DefectError")]
    with pytest.raises(CallRefused, match=r"\$0.200000 is left"):
        guard.authorize(0.4)
    first.settle(Usage(model="m0", cost_usd=0.1, latency_s=1.0))
    first.settle(Usage(model="m0", cost_usd=0.0, latency_s=1.0))
    guard.authorize(0.4)
    guard.add_inherited(None)  # another process spent nobody knows how much
    with pytest.raises(CallRefused, match="cannot be checked"):
        guard.authorize(0.0)


def test_the_stand_in_for_a_planner_is_the_default_not_a_guess(annotated, monkeypatch):
    monkeypatch.setattr(Planner, "prepare_in_background", broken)
    backend = EchoBackend()
    serve(vine_of(annotated, backend=backend), turns=2)
    assert [call.prefix[-1] for call in backend.calls] == [annotated.template.stages[0].default_model] * 2


def test_without_a_trie_a_defect_of_the_defaults_is_survived(monkeypatch):
    vine = VineLM(make_catalog(3), {"test": EchoBackend()}, template=make_template(3, 3))
    monkeypatch.setattr("vinelm.policies.fixed.DefaultPolicy.next_model", broken)
    assert serve(vine, None)["a"] == "m0;m0;m0;"


def test_a_guard_that_refuses_to_settle_has_failed_and_refuses_no_call():
    class Refusing:
        upper_usd = 0.5

        def settle(self, usage):
            raise CallRefused("the call is made already")

        close = settle

    guard_beneath, told = SpendGuard(1.0), []
    guard_beneath.authorize = lambda upper_usd: Refusing()
    guard = BoundGuard(guard_beneath, 1.0, lambda what, error: told.append((what, type(error).__name__)))
    guard.authorize(0.5).settle(Usage(model="m0", cost_usd=0.1, latency_s=1.0))
    assert told == [("guard.settle", "CallRefused")]
    guard.authorize(0.9)
    with pytest.raises(CallRefused, match=r"\$0.000000 is left"):
        guard.authorize(0.1)
