"""What can be wrapped, and the one line for what cannot."""

import contextlib
import functools
from typing import TYPE_CHECKING

import pytest
from kit.apps.echo import Frozen, Typed, control, forced, run
from langchain_core.runnables import RunnableLambda
from langgraph.graph import END, START, StateGraph

from vinelm.errors import ConfigError, WorkflowError

if TYPE_CHECKING:
    from somewhere import OnlyForCheckers


def function(state: Typed, model):
    return {"a": model.name_}


async def coroutine(state: Typed, model):
    return {"a": model.name_}


def forward(state: "Typed", model: "OnlyForCheckers") -> "dict":
    """A docstring."""
    return {"a": model.name_}


def with_default(state: Typed, model, tries: int = 3, *args, **kwargs):
    assert (tries, args, kwargs) == (3, (), {})
    return {"a": model.name_}


class Service:
    def method(self, state: Typed, model):
        return {"a": model.name_}

    async def amethod(self, state: Typed, model):
        return {"a": model.name_}

    @staticmethod
    def static(state: Typed, model):
        return {"a": model.name_}

    @classmethod
    def of_class(cls, state: Typed, model):
        return {"a": model.name_}


class Callable_:  # noqa: N801
    def __call__(self, state: Typed, model):
        return {"a": model.name_}


class AsyncCallable:
    async def __call__(self, state: Typed, model):
        return {"a": model.name_}


def logged(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs)

    return wrapper


@contextlib.contextmanager
def span():
    yield


@span()
def wrapped_elsewhere(state: "Typed", model):
    """The wrapper that ``span`` puts around it lives in contextlib, which knows no Typed."""
    return {"a": model.name_}


def partial_of(state, model, prefix):
    return {"a": prefix + model.name_}


SYNC = {
    "function": function,
    "forward references": forward,
    "defaults": with_default,
    "method": Service().method,
    "static method": Service.static,
    "class method": Service.of_class,
    "object": Callable_(),
    "decorated": logged(function),
    "decorated by another module": wrapped_elsewhere,
    "partial": functools.partial(with_default, tries=3),
}
ASYNC = {"coroutine": coroutine, "method": Service().amethod, "object": AsyncCallable()}


def app_of(vine, node):
    graph = StateGraph(Typed)
    graph.add_node("generate", node)
    graph.add_edge(START, "generate")
    graph.add_edge("generate", END)
    return graph.compile()


@pytest.mark.parametrize("fn", SYNC.values(), ids=SYNC)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_sync_callables(fn, mode):
    vine = control()
    app = app_of(vine, vine.stage("generate", fn))
    assert run(app, mode, {"q": "?"}, context=vine.context(policy=forced(vine, ["m1"])))["a"] == "m1"


@pytest.mark.parametrize("fn", ASYNC.values(), ids=ASYNC)
def test_async_callables(fn):
    vine = control()
    app = app_of(vine, vine.stage("generate", fn))
    assert run(app, "async", {"q": "?"}, context=vine.context(policy=forced(vine, ["m1"])))["a"] == "m1"
    with pytest.raises(TypeError, match="No synchronous function"):
        app.invoke({"q": "?"})


def test_partials_and_lambdas_with_the_state_given():
    vine = control()
    for fn in (functools.partial(partial_of, prefix=""), lambda state, model: {"a": model.name_}):
        assert app_of(vine, vine.stage("generate", fn, state=Typed)).invoke({"q": "?"})["a"] == "m0"


def test_as_a_decorator():
    vine = control()

    @vine.stage("generate", default="m2")
    def generate(state: Typed, model):
        """Writes."""
        return {"a": model.name_}

    assert app_of(vine, generate).invoke({"q": "?"})["a"] == "m2"
    assert vine.stages == {"generate": "m2"}
    assert (generate.__name__, generate.__doc__) == ("generate", "Writes.")
    assert not hasattr(generate, "__wrapped__")


def test_a_stage_is_not_its_function_for_whoever_holds_both():
    vine = control()
    assert vine.stage("generate", function) is not function
    assert "state" in function.__annotations__
    assert function.__annotations__["state"] is Typed


def generator(state: Typed, model):
    yield {}


async def agenerator(state: Typed, model):
    yield {}


def typed_as(annotation):
    def fn(state, model):
        return {}

    fn.__annotations__["state"] = annotation
    return fn


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (generator, "a generator function cannot be wrapped"),
        (agenerator, "a generator function cannot be wrapped"),
        (lambda: None, "takes no state"),
        (lambda *args: None, "takes no state"),
        (lambda state, model: None, "the type of its state is unknown: annotate the first parameter, or pass state="),
        (typed_as("Missing"), "the type of its state is unknown"),
        (typed_as(Typed | Frozen), "the type of its state is unknown"),
        (typed_as(dict), "use a TypedDict, a dataclass or a pydantic model"),
        (lambda state: None, "never asks for its model: add a parameter named `model`"),
        (lambda state, model, db: None, "unknown parameter 'db': it may ask for model, config, runtime"),
        (lambda state, model, /: None, "'model' is positional-only: let it be passed by name"),
        (functools.partial(partial_of, prefix=""), "the type of its state is unknown"),
        (RunnableLambda(lambda state: state), "needs a function, a method or a callable object"),
        ("name", "needs a function, a method or a callable object, not str"),
    ],
)
def test_refusals(fn, words):
    with pytest.raises(WorkflowError, match=words) as caught:
        control().stage("generate", fn)
    message = str(caught.value)
    assert message.startswith("stage 'generate'") or "state type" in message
    assert "\n" not in message


def test_an_unknown_default_is_refused():
    vine = control()
    with pytest.raises(ConfigError, match="stage 'generate': unknown default model 'gpt-9': the catalog has m0, m1, m2"):
        vine.stage("generate", function, default="gpt-9")
    assert vine.stages == {}
