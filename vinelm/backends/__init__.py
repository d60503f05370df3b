"""One backend per provider, behind :class:`vinelm.protocols.Backend`."""

from vinelm.backends.registry import PROVIDERS, create_backends

__all__ = ["PROVIDERS", "create_backends"]
