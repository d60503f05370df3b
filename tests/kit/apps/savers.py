"""A checkpointer in a file, which any process can open, and checkpoints as text, carried between savers and processes."""

import asyncio
import base64
import json
import os
import sqlite3
from contextlib import closing

from langgraph.checkpoint.base import WRITES_IDX_MAP, BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

SERDE = JsonPlusSerializer()


class FileSaver(BaseCheckpointSaver):
    """One SQLite file; a connection for each call. ``is_dead``: the process has ended, nothing is read or written any more."""

    def __init__(self, path):
        super().__init__()
        self.path, self.is_dead = str(path), False
        with closing(self._open()) as db, db:
            db.execute(
                "create table if not exists points (thread, ns, id, parent, kind, body, meta, primary key (thread, ns, id))"
            )
            db.execute(
                "create table if not exists writes (thread, ns, id, task, place, channel, kind, body, "
                "primary key (thread, ns, id, task, place))"
            )

    def _open(self):
        if self.is_dead:
            raise OSError("the process is dead")
        return sqlite3.connect(self.path, timeout=30.0)

    def get_next_version(self, current, channel):
        return (current or 0) + 1

    def get_tuple(self, config):
        given = config["configurable"]
        where, values = "thread = ? and ns = ?", [given["thread_id"], given.get("checkpoint_ns", "")]
        if given.get("checkpoint_id"):
            where, values = where + " and id = ?", [*values, given["checkpoint_id"]]
        with closing(self._open()) as db:
            row = db.execute(f"select * from points where {where} order by id desc limit 1", values).fetchone()
            return None if row is None else self._tuple(db, row)

    def _tuple(self, db, row):
        thread, ns, key, parent, kind, body, meta = row
        writes = db.execute(
            "select task, channel, kind, body from writes where thread = ? and ns = ? and id = ? order by task, place",
            (thread, ns, key),
        )

        def config(key):
            return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": key}}

        return CheckpointTuple(
            config(key),
            self.serde.loads_typed((kind, body)),
            json.loads(meta),
            None if parent is None else config(parent),
            [(task, channel, self.serde.loads_typed((kind, body))) for task, channel, kind, body in writes],
        )

    def list(self, config, *, filter=None, before=None, limit=None):
        given = config["configurable"]
        with closing(self._open()) as db:
            rows = db.execute(
                "select * from points where thread = ? and ns = ? order by id desc",
                (given["thread_id"], given.get("checkpoint_ns", "")),
            ).fetchall()
            yield from [self._tuple(db, row) for row in rows][:limit]

    def put(self, config, checkpoint, metadata, new_versions):
        given = config["configurable"]
        place = (given["thread_id"], given.get("checkpoint_ns", ""), checkpoint["id"])
        row = (*place, given.get("checkpoint_id"), *self.serde.dumps_typed(checkpoint), json.dumps(metadata))
        with closing(self._open()) as db, db:
            db.execute("insert or replace into points values (?, ?, ?, ?, ?, ?, ?)", row)
        return {"configurable": dict(zip(("thread_id", "checkpoint_ns", "checkpoint_id"), place, strict=True))}

    def put_writes(self, config, writes, task_id, task_path=""):
        given = config["configurable"]
        place = (given["thread_id"], given.get("checkpoint_ns", ""), given["checkpoint_id"], task_id)
        special = all(channel in WRITES_IDX_MAP for channel, _ in writes)
        with closing(self._open()) as db, db:
            for index, (channel, value) in enumerate(writes):
                db.execute(
                    f"insert or {'replace' if special else 'ignore'} into writes values (?, ?, ?, ?, ?, ?, ?, ?)",
                    (*place, WRITES_IDX_MAP.get(channel, index), channel, *self.serde.dumps_typed(value)),
                )

    async def aget_tuple(self, config):
        return FileSaver.get_tuple(self, config)

    async def aput(self, config, checkpoint, metadata, new_versions):
        return FileSaver.put(self, config, checkpoint, metadata, new_versions)

    async def aput_writes(self, config, writes, task_id, task_path=""):
        FileSaver.put_writes(self, config, writes, task_id, task_path)


class LoopSaver(FileSaver):
    """Like the asynchronous savers of LangGraph: synchronous calls from the event loop's own thread would never return."""

    @property
    def loop(self):
        return self

    def get_tuple(self, config):
        return self._apart(super().get_tuple, config)

    def put(self, *arguments):
        return self._apart(super().put, *arguments)

    def put_writes(self, *arguments):
        return self._apart(super().put_writes, *arguments)

    @staticmethod
    def _apart(method, *arguments):
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return method(*arguments)
        os._exit(7)  # it would hang


def dump(saver, config) -> list[str]:
    found = saver.get_tuple(config)
    kind, blob = SERDE.dumps_typed([found.checkpoint, found.metadata])
    return [kind, base64.b64encode(blob).decode()]


def load(saver, saved, thread_id) -> None:
    kind, text = saved
    checkpoint, metadata = SERDE.loads_typed((kind, base64.b64decode(text)))
    config = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    saver.put(config, checkpoint, metadata, checkpoint["channel_versions"])
