"""A checkpoint as text, carried between savers and processes."""

import base64

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

SERDE = JsonPlusSerializer()


def dump(saver, config) -> list[str]:
    found = saver.get_tuple(config)
    kind, blob = SERDE.dumps_typed([found.checkpoint, found.metadata])
    return [kind, base64.b64encode(blob).decode()]


def load(saver, saved, thread_id) -> None:
    kind, text = saved
    checkpoint, metadata = SERDE.loads_typed((kind, base64.b64decode(text)))
    config = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    saver.put(config, checkpoint, metadata, checkpoint["channel_versions"])
