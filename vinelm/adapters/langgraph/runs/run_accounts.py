"""The account of a run's request: where LangGraph keeps the thread that holds it, and how it is found when the run begins."""

from __future__ import annotations

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

from vinelm.adapters.langgraph.accounts.saver_rows import SaverRows
from vinelm.adapters.langgraph.accounts.thread_accounts import Beginning, ThreadAccounts
from vinelm.adapters.langgraph.path.path_channel import PathValue, account_of, channel_of
from vinelm.adapters.langgraph.runs.graph_run import GraphRun

_CHECKPOINTER, _DURABILITY = "__pregel_checkpointer", "__pregel_durability"  # LangGraph's, in a task's config


def with_account(run: GraphRun, config: RunnableConfig | None) -> GraphRun:
    """Return ``run``, which keeps what its request pays beside the thread's checkpoints, if it has a cap and a checkpointer."""
    if config is not None and run.can_keep_account:
        given = config.get("configurable", {})
        saver = given.get(_CHECKPOINTER)
        if isinstance(saver, BaseCheckpointSaver) and given.get("thread_id") is not None:
            run.keep_account(ThreadAccounts(SaverRows(saver, given)))
    return run


async def open_account(
    run: GraphRun,
    config: RunnableConfig,
    value: PathValue | None = None,
    *,
    continues: bool = False,
    is_inner: bool = False,
    is_async: bool,
) -> None:
    """Find the account of the run's request, and tell the run what it has paid.

    If that fails, calls are refused; the next invocation tries again.

    Args:
        run: a run whose account is not open.
        config: what LangGraph gave the node.
        value: the stored path.
        continues: whether the request goes on behind it.
        is_inner: whether the node is inside a subgraph, which does not see that path.
        is_async: see :class:`SaverRows`.
    """
    account = run.request_account
    assert account is not None
    channel, key = channel_of(config), account_of(value)
    is_stored = not is_inner and channel is not None and channel.opening is not None and channel.opening.is_stored
    given = config.get("configurable", {})
    begun = Beginning(
        checkpoint_id=(given.get("checkpoint_map") or {}).get(""),
        request_id=run.context.request_id,
        account=key if continues else None,
        after=None if continues or (key is None and not is_stored) else key or "",
        is_saved_late=given.get(_DURABILITY) == "exit",
    )
    try:
        await account.open(begun, is_async=is_async)
    except Exception as error:
        if run.on_error == "raise":
            raise
        run.note_failure("the request's account", error)


__all__ = ["open_account", "with_account"]
