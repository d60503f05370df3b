"""Makes the calls of a calibration to one model of a catalog. The calls cost money."""

from __future__ import annotations

import itertools
import threading
import uuid
from typing import Any
from urllib.error import URLError
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

from vinelm.backends import create_backends
from vinelm.catalog import Catalog, Model
from vinelm.clock import WallClock
from vinelm.controller.load.calibration import Experiment
from vinelm.errors import CallError, ConfigError, VineLMError
from vinelm.requests.protocols import CallContext, PricesCalls
from vinelm.rows.observation import Usage

PROMPTS = tuple(
    f"Write a SQL query that answers the question, then explain it clause by clause.\nTables: {tables}\nQuestion: {question}"
    for tables, question in (
        ("customer(id, name, city), orders(id, customer_id, total, placed_on)", "Which city spent most in 2023?"),
        ("film(id, title, length), actor(id, name), casting(film_id, actor_id)", "Who played in the three longest films?"),
        ("flight(id, origin, destination, delay_min), plane(id, model, seats)", "Which route is delayed most often?"),
        ("student(id, name, year), course(id, title), mark(student_id, course_id, points)", "Who failed every course?"),
        ("item(id, kind, price), sale(item_id, day, amount)", "Which kind's revenue fell from May to June?"),
    )
)
"""Default prompts, made up. The first belongs to the measured request."""


def model_on(catalog: Catalog, endpoint: str, name: str | None = None) -> Model:
    """Find a model of the catalog that runs on an endpoint.

    Args:
        catalog: The models.
        endpoint: An engine's name or an ``api_base``.
        name: The model's name; by default the first model on the endpoint.

    Raises:
        ConfigError: The catalog has no such model; the message lists the existing models.
    """
    wanted = endpoint.rstrip("/")
    there = [model for model in catalog.entries if wanted in (model.engine, (model.api_base or "").rstrip("/"))]
    if not there:
        engines = ", ".join(dict.fromkeys(model.engine for model in catalog.entries))
        raise ConfigError(f"no model of the catalog runs on {endpoint!r}: its engines are {engines}")
    if name is None:
        return there[0]
    for model in there:
        if model.name == name:
            return model
    raise ConfigError(f"model {name!r} does not run on {endpoint!r}: these do: {', '.join(m.name for m in there)}")


class Endpoint:
    """Makes calls to one model without client-side retries and rate limits, which would distort latencies. Thread-safe.

    Every prompt begins with a unique line, so that the engine's prompt cache does not help.

    Args:
        catalog: The catalog with the settings of the model's provider.
        model: The model to call.
        others_priority: The parameter ``priority`` of the calls that only keep the engine busy while another call is measured,
            for engines that support it. None sends none. SGLang serves higher values first, vLLM lower values.

    Raises:
        ConfigError: The model is simulated or recorded, so its latency is not real.
    """

    def __init__(self, catalog: Catalog, model: Model, *, others_priority: int | None = None) -> None:
        self.model = model
        options = model.options if others_priority is None else {**model.options, "priority": others_priority}
        self._other = model.model_copy(update={"options": options})
        settings = {key: value for key, value in catalog.backends.get(model.provider, {}).items() if key != "limits"}
        if model.provider in ("simulated", "recorded"):
            raise ConfigError(f"model {model.name!r} is {model.provider}: its engine has no load to measure")
        self.backend = create_backends(Catalog([model], {model.provider: {**settings, "max_retries": 0}}))[model.provider]
        self._next = itertools.cycle(PROMPTS)
        self._lock = threading.Lock()
        self.spent_usd = 0.0
        """Dollars spent so far."""

    def call(self, is_target: bool) -> None:
        """Make one call and discard its answer. Truncated, empty or filtered answers count as success.

        Raises:
            CallError: The call failed.
        """
        model = self.model if is_target else self._other
        with self._lock:
            prompt = PROMPTS[0] if is_target else next(self._next)
        context = CallContext(stage="calibrate", prefix=(model.name,), clock=WallClock(), on_usage=self._paid)
        try:
            self.backend.chat_model(model, context).invoke(_unique(prompt))
        except CallError as error:
            if error.kind not in ("truncated", "empty", "content_filter"):
                raise

    def upper_bound_usd(self, calls: int) -> float:
        """Return the maximum cost of ``calls`` calls, in dollars.

        It is computed from ``max_tokens`` if the backend gives no maximum.
        """
        return calls * max(map(self._bound, PROMPTS))

    def _bound(self, prompt: str) -> float:
        if not isinstance(self.backend, PricesCalls):
            return self.model.price.cost_usd(len(_unique(prompt).encode()), self.model.max_tokens)
        from langchain_core.messages import HumanMessage

        return self.backend.upper_bound_usd(self.model, [HumanMessage(_unique(prompt))])

    def _paid(self, usage: Usage) -> None:
        with self._lock:
            self.spent_usd += usage.cost_usd

    def experiment(self, *, flush_url: str | None = None, **settings: Any) -> Experiment:
        """Return an experiment that calls this endpoint; ``settings`` are the other fields of :class:`Experiment`.

        ``flush_url`` receives a POST before each run to empty the prompt cache (SGLang: ``/flush_cache``).
        """
        if flush_url is None:
            return Experiment(call=self.call, **settings)
        if not flush_url.startswith(("http://", "https://")):
            raise ConfigError(f"the flush address {flush_url!r} is no URL: give it as http://host:port/flush_cache")
        return Experiment(call=self.call, flush=lambda: _post(flush_url), **settings)


def _unique(prompt: str) -> str:
    return f"[{uuid.uuid4()}]\n{prompt}"


def _post(url: str) -> None:
    """Send an HTTP POST to ``url``, which empties the engine's prompt cache."""
    try:
        with urlopen(HttpRequest(url, method="POST"), timeout=30.0) as answer:
            answer.read()
    except (URLError, OSError) as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        raise VineLMError(f"{url}: the engine did not empty its cache ({reason}): leave the flush address out") from error
