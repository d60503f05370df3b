"""Keeps secrets out of catalogs and messages."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from vinelm.errors import ConfigError

if TYPE_CHECKING:
    from vinelm.catalog.model import Model

_SECRET_KEY = re.compile(
    r"(^|_)((api|access|secret|private|auth|account|subscription)_?key"
    r"|secret|password|passwd|passphrase|authorization|credentials?|bearer|cookie|token)(_id)?$"
)
_NO_SECRET = re.compile(r"(^|_)(bos|eos|pad|unk|sep|stop|end|mask)_token(_id)?$|_env$")
_URL_WITH_PASSWORD = re.compile(r"^[a-z][a-z0-9+.-]*://[^/\s]*:[^/\s]*@", re.IGNORECASE)


def refuse_secrets(models: tuple[Model, ...], backends: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise :class:`ConfigError` if an entry or setting contains a secret, since catalogs are stored on disk. The message does
    not contain the secret.
    """
    _name_keys(models)
    places: list[tuple[str, Any]] = [(f"model {model.name!r}: options", model.options) for model in models]
    places += [(f"model {model.name!r}: api_base", model.api_base) for model in models]
    places += [(f"[backend.{name}]", settings) for name, settings in backends.items()]
    for where, value in places:
        found = _secret_in(value)
        if found is not None:
            raise ConfigError(
                f"{where}: {found or 'the URL'} holds a secret, and catalogs are stored on disk: "
                "put it into an environment variable and name the variable in api_key_env"
            )


def holds_secret(value: Any) -> bool:
    """Return whether a value contains a secret: a value under a key such as ``api_key``, or a text that looks like a secret,
    such as ``Bearer ...``.
    """
    return _secret_in(value) is not None


def _secret_in(value: Any) -> str | None:
    """Return the key under which ``value`` contains a secret, in quotes; None if it contains no secret.

    Return "" if the secret has no key, as in a plain text or a list.
    """
    if isinstance(value, Mapping):
        for key, inner in value.items():
            name = re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(key)).lower())
            if _SECRET_KEY.search(name) and not _NO_SECRET.search(name) and not isinstance(inner, bool | None):
                return repr(str(key))
            found = _secret_in(inner)
            if found is not None:
                return found or repr(str(key))
    elif isinstance(value, list | tuple):
        return next((found for found in map(_secret_in, value) if found is not None), None)
    elif isinstance(value, str) and (_URL_WITH_PASSWORD.search(value) or value.startswith(("Bearer ", "Basic "))):
        return ""
    return None


_SECRET_VARIABLE = re.compile(
    r"(KEY|KEYS|KEY_ID|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|PASS|PWD|DSN|CREDENTIALS?|AUTHORIZATION|COOKIE)$", re.IGNORECASE
)
_NO_SECRETS = frozenset({"PWD", "OLDPWD"})

_LOOKS_SECRET = (
    (re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)"), "[user:password]"),
    (re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE), r"\1 [secret]"),
    (re.compile(r"\beyJ[\w-]{6,}\.[\w-]{6,}(\.[\w-]*)?"), "[token]"),
    (re.compile(r"\b(sk|pk|rk|gsk|hf|xai|ghp|gho|ghs|glpat|xox[abprs])[-_][\w-]{16,}"), "[key]"),
    (re.compile(r"\b(AKIA|ASIA)[A-Z0-9]{16}\b"), "[key]"),
    (re.compile(r"\bAIza[\w-]{30,}"), "[key]"),
    (re.compile(r"\bya29\.[\w-]{8,}"), "[token]"),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL), "[private key]"),
    (re.compile(r"(passw(?:or)?d|passphrase)([\"']?\s*[=:]\s*[\"']?)[^\s\"'&,;\[]{4,}", re.IGNORECASE), r"\1\2[secret]"),
    (
        re.compile(
            r"((?:api|access|secret|private)[_-]?key|secret|token|authorization)([\"']?\s*[=:]\s*[\"']?)"
            r"(?=[^\s\"'&,;]*\d)[^\s\"'&,;\[]{8,}",  # with a digit: not every word after "token:" is a secret
            re.IGNORECASE,
        ),
        r"\1\2[secret]",
    ),
)
_SHORTEST = 8
"""The minimum length of a text that is considered a secret."""
_LABEL = 200
"""The maximum length of an id whose redacted form is remembered."""
_named: set[str] = set()


def name_secret(variable: str) -> None:
    """Make :func:`redacted` replace the value of the environment variable ``variable`` in this process, even if its name does
    not look secret.
    """
    _named.add(variable)


def redacted(text: str) -> str:
    """Return ``text`` with secrets replaced, for example those in a provider's message or a traceback.

    Values of environment variables that a catalog names, or whose names look secret (``..._KEY``, ``..._DSN``), are replaced by
    the variables' names. Texts that look like credentials are replaced, too: passwords in URLs, bearer tokens, keys of known
    providers, values after ``password=`` and the like.
    """
    if len(text) < _SHORTEST:
        return text
    secrets = _secrets().named
    return _redacted_label(text, secrets) if len(text) <= _LABEL else _redacted(text, secrets)


def _redacted(text: str, secrets: tuple[tuple[str, str], ...]) -> str:
    for value, name in secrets:
        text = text.replace(value, name)
    for pattern, instead in _LOOKS_SECRET:
        text = pattern.sub(instead, text)
    return text


_redacted_label = lru_cache(maxsize=256)(_redacted)
"""Ids and finish reasons are redacted when they arrive, and again when they are stored."""


class _Secrets(NamedTuple):
    """The secrets that the environment contained when it was read.

    Attributes:
        environment: A copy of the environment, to notice changes; None if it has to be read every time.
        names: How many variables had been passed to :func:`name_secret` at that time.
        named: Pairs of a secret value and its replacement ``$NAME``, the longest value first.
    """

    environment: object
    names: int
    named: tuple[tuple[str, str], ...]


_known: _Secrets | None = None


def _secrets() -> _Secrets:
    """Return the secrets that the environment contains now.

    Since :func:`redacted` is called often, the environment is read again only if it has changed, or if :func:`name_secret` has
    named another variable. On interpreters other than CPython a change cannot be noticed, so the environment is always read.
    """
    global _known  # noqa: PLW0603 - what was read of the one environment
    held, known, names = getattr(os.environ, "_data", None), _known, len(_named)
    if known is not None and held is not None and known.environment == held and known.names == names:
        return known
    now = dict(held) if held is not None else None  # before it is read: a change meanwhile is seen by the next call
    values = {value: name for name, value in os.environ.items() if _is_secret(name) and len(value) >= _SHORTEST}
    # The longest first, since one may be a part of another.
    named = tuple((value, f"${values[value]}") for value in sorted(values, key=len, reverse=True))
    _known = _Secrets(now, names, named)
    return _known


def _is_secret(variable: str) -> bool:
    return variable in _named or (variable not in _NO_SECRETS and bool(_SECRET_VARIABLE.search(variable)))


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _is_key(name: str) -> bool:
    """Return whether a text that should be the name of an environment variable looks like an API key itself."""
    if not _VARIABLE.fullmatch(name) or redacted(name) != name:
        return True
    is_mixed = all(re.search(kind, name) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
    return len(name) >= 20 and "_" not in name and (is_mixed or re.fullmatch(r"[0-9a-f]+", name) is not None)


def _name_keys(models: tuple[Model, ...]) -> None:
    for model in models:
        if model.api_key_env is None:
            continue
        if _is_key(model.api_key_env):
            raise ConfigError(
                f"model {model.name!r}: api_key_env is not the name of an environment variable: put the key into a variable, "
                "and its name here"
            )
        name_secret(model.api_key_env)
