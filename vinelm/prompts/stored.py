"""Converts shapes of prompts to bytes, which are stored with a row's calls, and back."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable
from hashlib import blake2b

from vinelm.prompts.shape import Point, Shape

KEY_BYTES = 16
_MARK_BYTES = 8
_SIZES = struct.Struct("<II")


def packed(shapes: Iterable[Shape], key: bytes) -> bytes:
    """Return the shapes as bytes (about 8 bytes per block and 12 per part), with a fingerprint of their key."""
    data = [_mark(key)]
    for shape in shapes:
        n_blocks, n_ends = len(shape.blocks), len(shape.ends)
        digests = (*shape.blocks, *(end.digest for end in shape.ends))
        tokens = (end.tokens for end in shape.ends)
        data += [_SIZES.pack(n_blocks, n_ends), struct.pack(f"<{n_blocks + n_ends}Q{n_ends}I", *digests, *tokens)]
    return b"".join(data)


def unpacked(data: bytes, key: bytes) -> tuple[Shape, ...]:
    """Return the shapes from which :func:`packed` made ``data``; raise :class:`ValueError` if the key is another one or
    bytes are missing.
    """
    if data[:_MARK_BYTES] != _mark(key):
        raise ValueError("made with another key")
    found, at = [], _MARK_BYTES
    try:
        while at < len(data):
            n_blocks, n_ends = _SIZES.unpack_from(data, at)
            form = struct.Struct(f"<{n_blocks + n_ends}Q{n_ends}I")
            values = form.unpack_from(data, at + _SIZES.size)
            ends = zip(values[n_blocks : n_blocks + n_ends], values[n_blocks + n_ends :], strict=True)
            found.append(Shape(array("Q", values[:n_blocks]), tuple(Point(*end) for end in ends)))
            at += _SIZES.size + form.size
    except struct.error:
        raise ValueError("cut off") from None
    return tuple(found)


def _mark(key: bytes) -> bytes:
    return blake2b(b"mark", key=key, digest_size=_MARK_BYTES).digest()
