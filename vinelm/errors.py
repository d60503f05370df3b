"""The classes of all errors that VineLM raises on purpose, in one hierarchy.

::

    VineLMError
    ├── InputError            the caller's input is wrong; the CLI exits 2
    │   ├── ConfigError       a config file, an option, an unknown key or model
    │   │   ├── MissingExtra  a library that is not installed; names the extra that installs it
    │   │   └── NotPicklable  an object that cannot leave its process; also a ``TypeError``
    │   ├── DatasetError      a dataset, a database or a gold answer
    │   ├── TemplateError     stages, loops and allowed models do not fit together
    │   ├── WorkflowError     a graph that VineLM cannot profile or serve as it stands
    │   ├── StoreError        a store that is missing, damaged, of another workflow or a newer version
    │   ├── TrieFileError     a ``.vine`` file that is missing, damaged or of a newer version
    │   └── InfeasibleError   no path meets the bounds; names a bound that none meets
    ├── StageBroken           every call of a stage fails in the same way; the CLI exits 1, the run can be resumed
    ├── WorkerDied            a process of VineLM's own died; the CLI exits 1, the run can be resumed
    ├── FleetUnreachable      the Redis of a fleet does not answer; the process continues alone
    ├── JournalUnavailable    the journal of a fleet's spending cannot be used
    ├── EvidenceError         too few observations for a conclusion; the CLI exits 1
    ├── NotFittedError        an estimator was used before ``fit``
    ├── BudgetExhausted       a budget is reached; the CLI exits 3, the run can be resumed
    └── CallError             one model call failed; ``kind`` says how
        └── CallRefused       the request's cost cap did not allow the call, which was not made

The message of an :class:`InputError` is one line that says what is wrong, where, and how to fix it, in the library's own terms.
``code`` identifies the error to programs: callers branch on it, never on the message, and the command line adds its options to
it (`vinelm/cli/failures.py`). Low-level errors are translated where they enter, with the cause kept.
"""

from __future__ import annotations

import threading
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
    "unexpected_arm",
    "crash",
    "state",
    "budget",
    "unknown",
]
"""Why an invocation failed. ``tool``: the application's own code raised; ``crash``: the worker process died; ``state``: the
workflow's state cannot be checkpointed; ``budget``: the request's cost cap did not allow the call."""


UNSUPPORTED_CALL = "unsupported-call"
"""The ``code`` of an :class:`InputError` of one call that this model cannot take, and another may: a kind of content, tools, a
parameter. Nothing was sent, and nothing paid."""


class VineLMError(Exception):
    """Root of every error that VineLM raises on purpose.

    Args:
        message: One line for a person.
        code: A stable identifier for programs, in kebab case; None takes the default of the class.
    """

    default_code: ClassVar[str] = "error"

    def __init__(self, message: str = "", *, code: str | None = None) -> None:
        super().__init__(message)
        self.code = self.default_code if code is None else code


class StageBroken(VineLMError):
    """The first results of a run, or of one of its stages, all failed, so the workflow is wrong. The results are kept."""

    default_code = "stage-broken"


class WorkerDied(VineLMError):
    """A worker process ended unexpectedly. The run can be resumed."""

    default_code = "worker-died"


class FleetUnreachable(VineLMError):
    """The Redis of a fleet does not answer, or has lost its data. The process continues alone."""

    default_code = "fleet-unreachable"


class JournalUnavailable(VineLMError):
    """The journal of a fleet's spending cannot be read or written. Until it works again, no process gets a part of the
    budget.
    """

    default_code = "journal-unavailable"


class InputError(VineLMError):
    """The caller's input is wrong. The message is one line: what is wrong, where, and how to fix it."""

    default_code = "input"


class ConfigError(InputError):
    """A configuration is wrong: a file, a parameter, or an unknown key, model or stage."""

    default_code = "config"


class MissingExtra(ConfigError, ImportError):
    """A library from an extra of VineLM is not installed. The message names the extra. It is also an ``ImportError``."""

    default_code = "missing-extra"


class NotPicklable(ConfigError, TypeError):
    """An attempt to pickle an object that must stay in this process, because it counts calls here. Also a ``TypeError``."""

    default_code = "not-picklable"


class DatasetError(InputError):
    """A dataset is wrong: a line, a database or a gold answer."""

    default_code = "dataset"


class TemplateError(InputError):
    """Stages, loops and allowed models do not fit together."""

    default_code = "template"


class WorkflowError(InputError):
    """A graph that VineLM cannot profile or serve as it stands."""

    default_code = "workflow"


class StoreError(InputError):
    """A store that is missing, locked, damaged, written by a newer version, or belongs to another workflow."""

    default_code = "store"


class TrieFileError(InputError):
    """A ``.vine`` file that is missing, damaged or written by a newer version."""

    default_code = "trie-file"


class InfeasibleError(InputError):
    """No path meets the limits that an objective sets.

    Args:
        message: One line for a person.
        bound: The name of the objective's field (such as ``max_cost_usd``) that no path meets.
        limit: The requested value of this field, in its unit.
        best: The best value of this field among all paths, in its unit.
        code: A stable identifier for programs, see :class:`VineLMError`.
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
    """There are too few recorded results for a conclusion."""

    default_code = "evidence"


class NotFittedError(VineLMError):
    """An estimator was used before ``fit``."""

    default_code = "not-fitted"


class BudgetExhausted(VineLMError):
    """A budget is reached. Every result so far is in the store; the same call with a larger budget continues the run."""

    default_code = "budget"


class CallError(VineLMError):
    """One model call failed, after its retries.

    Args:
        message: One line for a person.
        kind: Why the call failed.
        cost_usd: The cost of the failed call in dollars.
    """

    default_code = "call"

    def __init__(self, message: str, *, kind: FailureKind = "unknown", cost_usd: float = 0.0) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind
        self.cost_usd = cost_usd


class CallRefused(CallError):
    """A call was not made, because its maximum cost and the request's spending so far exceed the request's cost limit."""

    default_code = "call-refused"

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="budget")


def is_of_code(error: BaseException) -> bool:
    """Return whether an exception, raised in a run, ends only that run (True) or must end the whole process (False).

    True: every ``Exception``; ``sys.exit()`` in a node of a graph, which must not discard what other requests paid for; and
    ``KeyboardInterrupt`` outside of the main thread. False: ``KeyboardInterrupt`` on the main thread, where it means Ctrl-C,
    and the exceptions with which VineLM itself ends a run.
    """
    if isinstance(error, Exception):
        return True
    if type(error).__module__.partition(".")[0] == "vinelm":
        return False
    return not isinstance(error, KeyboardInterrupt) or threading.current_thread() is not threading.main_thread()
