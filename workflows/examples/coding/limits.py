"""Resource limits of a process that runs generated code or its tests. Runs inside the sandbox: standard library only."""

from __future__ import annotations


def limits(timeout_s: float) -> dict[str, int]:
    """Return the limits by their names in :mod:`resource`: memory, processor time, file size, open files, core files."""
    return {
        "RLIMIT_AS": 512 << 20,
        "RLIMIT_CPU": int(timeout_s) + 1,
        "RLIMIT_FSIZE": 1 << 20,
        "RLIMIT_NOFILE": 64,
        "RLIMIT_CORE": 0,
    }


def impose(wanted: dict[str, int]) -> None:
    """Limit this process for good, at most to what it may use now."""
    import resource

    for name, most in wanted.items():
        kind = getattr(resource, name)
        _, hard = resource.getrlimit(kind)
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (limit, limit))
