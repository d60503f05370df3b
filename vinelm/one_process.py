"""Base class of objects that count the calls of this process, and therefore must not be copied."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

from vinelm.errors import NotPicklable

T = TypeVar("T")


class OneProcess:
    """Base class of objects that copying returns unchanged, so that a copy has the same budgets, accounts and counters.

    Frameworks copy the objects that an application passes to them. A real copy would allow spending the same budget twice.
    """

    __slots__ = ()

    def __copy__(self: T) -> T:
        return self

    def __deepcopy__(self: T, memo: Any) -> T:
        return self

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        refuse_pickle(self)


def refuse_pickle(made: object, protocol: object = None) -> NoReturn:
    """Raise :class:`~vinelm.errors.NotPicklable`: a copy in another process would allow spending the same budget again."""
    raise NotPicklable(
        f"a {type(made).__name__} cannot be pickled: its calls, caps and prices are counted in this process; make it in the "
        "process that uses it (VineLM(models=..., trie=...).chat_model(...))"
    )
