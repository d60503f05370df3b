"""The money of one unit, guarded call by call: no call is made for which not enough is set aside."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from vinelm.catalog import Model
from vinelm.errors import BudgetExhausted
from vinelm.observation import Usage
from vinelm.protocols import PricesCalls

TopUp = Callable[[float], bool]
"""Asks for the unit's reservation to be raised to that many dollars; whether it was. May wait."""


class Purse:
    """What one unit may still spend. Calls of one unit may come from several threads.

    ``upper_usd`` is set aside already. A call whose bound goes beyond it asks ``top_up`` first, and is not made if that says
    no: :attr:`was_refused` then, whatever the application makes of the exception.
    """

    def __init__(
        self,
        upper_usd: float,
        top_up: TopUp,
        *,
        on_usage: Callable[[Usage], None] | None = None,
        on_under_way: Callable[[float], None] | None = None,
    ) -> None:
        self._upper_usd = upper_usd
        self._top_up = top_up
        self._on_usage = on_usage
        self._on_under_way = on_under_way
        self._lock = threading.Lock()
        self._spent_usd = 0.0
        self._under_way: dict[Any, float] = {}
        self.calls = 0
        self.was_refused = False

    def before(self, call: Any, upper_usd: float) -> None:
        """A call that costs at most ``upper_usd`` is about to be made. :class:`BudgetExhausted` if it must not be."""
        with self._lock:
            needed = self._spent_usd + sum(self._under_way.values()) + upper_usd
            if needed > self._upper_usd:
                if self.was_refused or not self._top_up(needed):
                    self.was_refused = True
                    raise BudgetExhausted(f"the next call may cost up to ${upper_usd:.6f}, more than is left of the budget")
                self._upper_usd = needed
            self._under_way[call] = upper_usd
            self._tell()

    def after(self, call: Any) -> None:
        """That call is over, well or badly. Its price came by :meth:`paid`."""
        with self._lock:
            self._under_way.pop(call, None)
            self._tell()

    def paid(self, usage: Usage) -> None:
        """A call was settled at its real price."""
        with self._lock:
            self._spent_usd += usage.cost_usd
            self.calls += 1
            if self._on_usage is not None:
                self._on_usage(usage)

    @property
    def spent_usd(self) -> float:
        """Dollars of the calls that are over."""
        return self._spent_usd

    def _tell(self) -> None:
        if self._on_under_way is not None:
            self._on_under_way(sum(self._under_way.values()))


class PurseHandler(BaseCallbackHandler):
    """Stands before every call of one chat model, however the application calls it."""

    raise_error = True
    run_inline = True

    def __init__(self, purse: Purse, backend: PricesCalls, model: Model, own_options: Mapping[str, Any]) -> None:
        self._purse, self._backend, self._model = purse, backend, model
        self._not_options = {*own_options, "_type"}

    def on_chat_model_start(
        self, serialized: dict[str, Any], messages: list[list[BaseMessage]], *, run_id: Any, **kwargs: Any
    ) -> None:
        """Price the call by its real prompt and set that much aside."""
        given: Mapping[str, Any] = kwargs.get("invocation_params") or {}
        options = {key: value for key, value in given.items() if key not in self._not_options and value is not None}
        self._purse.before(run_id, sum(self._bound(batch, options) for batch in messages))

    def _bound(self, messages: Sequence[BaseMessage], options: Mapping[str, Any]) -> float:
        try:
            return self._backend.upper_bound_usd(self._model, messages, **options)
        except Exception:
            return 0.0  # the call itself is about to fail in the same way, unmade

    def on_llm_end(self, response: Any, *, run_id: Any, **kwargs: Any) -> None:
        """The call is over."""
        self._purse.after(run_id)

    def on_llm_error(self, error: BaseException, *, run_id: Any, **kwargs: Any) -> None:
        """The call is over."""
        self._purse.after(run_id)


def guarded(chat: BaseChatModel, purse: Purse | None, backend: object, model: Model) -> BaseChatModel:
    """``chat``, with the purse before its calls where its backend can price them."""
    if purse is not None and isinstance(backend, PricesCalls):
        chat.callbacks = [PurseHandler(purse, backend, model, chat._identifying_params)]
    return chat
