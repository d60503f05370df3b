"""The protocol between the parent and its children: frames (a JSON object and bytes) over a stream socket, without pickle."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from vinelm.rows.observation import Observation

_HEAD = struct.Struct("<II")


def send(channel: socket.socket, plain: Mapping[str, Any], content: bytes = b"") -> None:
    """Send one frame: ``plain`` as a JSON object, and ``content`` as bytes.

    Raises:
        OSError: the other process has exited.
    """
    text = json.dumps(plain, allow_nan=False).encode()
    channel.sendall(_HEAD.pack(len(text), len(content)) + text + content)


def receive(channel: socket.socket) -> tuple[dict[str, Any], bytes] | None:
    """Return the next frame as (JSON object, bytes); None if the other process has exited, even in the middle of a frame.

    Raises:
        TimeoutError: the socket's timeout has passed.
    """
    head = _exactly(channel, _HEAD.size)
    if head is None:
        return None
    text_size, content_size = _HEAD.unpack(head)
    body = _exactly(channel, text_size + content_size)
    return None if body is None else (json.loads(body[:text_size]), body[text_size:])


def _exactly(channel: socket.socket, size: int) -> bytes | None:
    parts: list[bytes] = []
    while size:
        try:
            part = channel.recv(min(size, 1 << 20))
        except ConnectionError:
            return None
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def plain_row(observation: Observation) -> dict[str, Any]:
    """Return the observation as plain JSON types; :func:`row_of` reads it back."""
    return asdict(observation)


def row_of(plain: Mapping[str, Any]) -> Observation:
    """Return the observation that :func:`plain_row` converted."""
    return Observation(**{**plain, "prefix": tuple(plain["prefix"])})
