"""Assigns requests to plans by a hash of a secret and the request's name, so that no caller can choose the assignment."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path

from vinelm.errors import ConfigError

VARIABLE = "VINELM_DRAW_SECRET"
SUFFIX = ".draws"
"""Suffix of the file, next to a store, that holds the secret."""
SHORTEST = 16
"""Minimum length of a secret in characters."""


class Draws:
    """Makes the keys by which requests are assigned to plans. Processes with the same secret make the same assignments.

    Args:
        secret: known only to the operator. Empty if callers do not choose the requests' names, as in an evaluation; the
            assignments can then be repeated.
        is_kept: whether the secret stays the same in other processes and after a restart of this process.
    """

    @classmethod
    def of(cls, given: str | None, store: Path | None) -> Draws:
        """Return a :class:`Draws` with the secret that :func:`draw_secret` finds for these arguments; if it finds none, with a
        random secret of this process.
        """
        found = draw_secret(given, store)
        return cls(secrets.token_bytes(32), is_kept=False) if found is None else cls(found)

    def __init__(self, secret: bytes, *, is_kept: bool = True) -> None:
        self._secret, self.is_kept = secret, is_kept

    def key(self, data: str, kind: str, tenant: str, name: str) -> str:
        """Return the key by which a request, a conversation or a tenant is assigned to a plan; a hexadecimal text.

        Args:
            data: the digest of the trie's data set. A trie of another data set thus assigns requests differently.
            kind: what ``name`` names: "request", "conversation" or "tenant". Equal names of different kinds have different
                keys.
            tenant: the tenant that the request or conversation belongs to; "" if there is none.
            name: the name, which the caller may have chosen.
        """
        text = json.dumps([data, kind, tenant, name])  # as a list: no part can pose as two
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()


def draw_secret(given: str | None, store: Path | None) -> bytes | None:
    """Return the secret for the keys by which requests are assigned to plans; None without an operator's secret and a store.

    Args:
        given: the operator's secret; None takes the value of the environment variable :data:`VARIABLE`.
        store: the store of served rows; None without one. Without an operator's secret, the secret in a file next to the store
            is used. The file is created if it is missing.

    Raises:
        ConfigError: the operator's secret is too short, or the file next to the store can be neither read nor created.
    """
    said = os.environ.get(VARIABLE, "") if given is None else given
    if said or given is not None:
        if len(said) < SHORTEST:
            raise ConfigError(
                f"{VARIABLE if given is None else 'draw_secret'} has {len(said)} characters: give at least {SHORTEST} that "
                "nobody can guess, the same to all processes that serve together"
            )
        return said.encode()
    return None if store is None else _beside(store)


def _beside(store: Path) -> bytes:
    """Return the secret in the file next to a store. If several processes create it at once, all get the same secret."""
    path = Path(f"{store}{SUFFIX}")
    try:
        if not path.exists():
            draft = Path(f"{path}.{secrets.token_hex(8)}")
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
                file.write(secrets.token_hex(32))
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(draft, path)
            except FileExistsError:
                pass
            finally:
                draft.unlink()
        found = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "no text"
        raise ConfigError(f"{path}: cannot keep the secret of draws there ({why}): set {VARIABLE} instead") from error
    if len(found) < SHORTEST:
        raise ConfigError(f"{path}: holds no secret of draws: delete it to have one made, or set {VARIABLE}")
    return found.encode()
