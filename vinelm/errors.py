"""Every error that VineLM raises on purpose, in one tree.

::

    VineLMError
    ├── InputError            the caller's input is at fault; the CLI exits 2
    │   ├── ConfigError       a config file, an option, an unknown key or model
    │   ├── DatasetError      a dataset, a database or a gold answer
    │   ├── TemplateError     stages, loops and allowed models do not fit together
    │   ├── WorkflowError     a graph that VineLM cannot profile or serve as it stands
    │   ├── StoreError        a store that is missing, foreign, newer or damaged
    │   ├── TrieFileError     a ``.vine`` file that is missing, newer or damaged
    │   └── InfeasibleError   no path meets the bounds; names the binding one
    ├── EvidenceError         too few observations to say anything; the CLI exits 1
    ├── NotFittedError        an estimator was asked before ``fit``
    ├── BudgetExhausted       the cap is reached; the CLI exits 3, the run resumes
    └── CallError             one model call failed; ``kind`` says how
        └── CallRefused       the request's own cost cap did not allow the call: it was not made

The message of an :class:`InputError` is one line that says what is wrong, where, and how to fix it, in the library's own terms.
``code`` identifies the error to programs: callers branch on it, never on the message, and the command line adds its options to
it (`vinelm/cli/hints.py`). Low-level errors are translated where they enter, with the cause kept.
"""

from __future__ import annotations

from typing import ClassVar, Literal

FailureKind = Literal[
    "auth",
    "rate_limit",
    "timeout",
    "context_length",
    "content_filter",
    "server",
    "malformed",
    "truncated",
    "empty",
    "tool",
    "crash",
    "state",
    "budget",
    "unknown",
]
"""Why an invocation failed. ``tool`` is the application's own code, ``crash`` the death of a worker,
``state`` a workflow state that cannot be checkpointed, ``budget`` a call that the request's own cap did not allow."""


class VineLMError(Exception):
    """Root of every error that VineLM raises on purpose.

    Args:
        message: one line for a person.
        code: a stable identifier for programs, in lower case with dashes; by default that of the class.
    """

    default_code: ClassVar[str] = "error"

    def __init__(self, message: str = "", *, code: str | None = None) -> None:
        super().__init__(message)
        self.code = self.default_code if code is None else code


class InputError(VineLMError):
    """The caller's input is at fault. One line: what, where, how to fix it."""

    default_code = "input"


class ConfigError(InputError):
    """A config file, an option, an unknown key, model or stage."""

    default_code = "config"


class DatasetError(InputError):
    """A dataset line, a database or a gold answer."""

    default_code = "dataset"


class TemplateError(InputError):
    """Stages, loops and allowed models do not fit together."""

    default_code = "template"


class WorkflowError(InputError):
    """A graph that VineLM cannot profile or serve as it stands."""

    default_code = "workflow"


class StoreError(InputError):
    """A store that is missing, locked, newer, damaged, or belongs to another workflow."""

    default_code = "store"


class TrieFileError(InputError):
    """A ``.vine`` file that is missing, newer or damaged."""

    default_code = "trie-file"


class InfeasibleError(InputError):
    """No path meets the bounds.

    ``bound`` is the objective's field that binds, ``limit`` what was asked and ``best`` the best that any path
    offers, both in the unit of the field.
    """

    default_code = "infeasible"

    def __init__(
        self,
        message: str,
        *,
        bound: str = "",
        limit: float = float("nan"),
        best: float = float("nan"),
        code: str | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.bound = bound
        self.limit = limit
        self.best = best


class EvidenceError(VineLMError):
    """Too few observations to say anything."""

    default_code = "evidence"


class NotFittedError(VineLMError):
    """An estimator was asked before ``fit``."""

    default_code = "not-fitted"


class BudgetExhausted(VineLMError):
    """A cap is reached. Everything bought so far is in the store; the same command line resumes."""

    default_code = "budget"


class CallError(VineLMError):
    """One model call failed, retries included. ``kind`` says how; ``cost_usd`` is what it cost all the same."""

    default_code = "call"

    def __init__(self, message: str, *, kind: FailureKind = "unknown", cost_usd: float = 0.0) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind
        self.cost_usd = cost_usd


class CallRefused(CallError):
    """A call was not made: what its request has spent and what the call could cost exceed the request's cap."""

    default_code = "call-refused"

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="budget")
