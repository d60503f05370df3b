"""The system calls that sandboxed code may not make, as a seccomp filter for bubblewrap.

Denied are calls that start processes, that open sockets (some families are not bound to a network namespace), that make memory
which no limit counts, and those with which kernels have been attacked from inside a user namespace. Threads are allowed.
"""

from __future__ import annotations

import platform
import struct

_EPERM, _ENOSYS = 1, 38
_CLONE_THREAD = 0x10000
_NR, _ARCH, _ARG0 = 0, 4, 16
"""Offsets in ``struct seccomp_data``; both architectures are little-endian."""

_LOAD, _EQUAL, _AT_LEAST, _HAS_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_X32 = 0x40000000

# name: numbers on x86_64 and aarch64 (None: there is no such call)
_DENIED: dict[str, tuple[int | None, int | None]] = {
    "fork": (57, None), "vfork": (58, None), "socket": (41, 198), "ptrace": (101, 117), "mount": (165, 40),
    "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97), "setns": (308, 268),
    "bpf": (321, 280), "perf_event_open": (298, 241), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "shmget": (29, 194),
    "shmat": (30, 196), "shmctl": (31, 195), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "kcmp": (312, 272), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "personality": (135, 92), "swapon": (167, 224),
    "swapoff": (168, 225), "reboot": (169, 142), "sethostname": (170, 161), "setdomainname": (171, 162),
    "iopl": (172, None), "ioperm": (173, None), "quotactl": (179, 60), "acct": (163, 89), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "adjtimex": (159, 171), "vhangup": (153, 58), "syslog": (103, 116),
    "mbind": (237, 235), "set_mempolicy": (238, 237), "migrate_pages": (256, 238), "move_pages": (279, 239),
    "fanotify_init": (300, 262), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "modify_ldt": (154, None), "uselib": (134, None), "execveat": (322, 281),
}  # fmt: skip
_CLONE, _CLONE3 = (56, 220), 435
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "amd64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7), "arm64": (1, 0xC00000B7)}


def is_supported() -> bool:
    """Whether there is a filter for this machine's architecture."""
    return platform.machine().lower() in _ARCHITECTURES


def filter_program() -> bytes:
    """Return the filter for this machine's architecture as the kernel reads it (an array of ``struct sock_filter``)."""
    column, architecture = _ARCHITECTURES[platform.machine().lower()]
    numbers = [pair[column] for pair in _DENIED.values()]
    program = [
        _step(_LOAD, _ARCH),
        _step(_EQUAL, architecture, 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NR),
        _step(_AT_LEAST, _X32, 0, 1),
        _step(_RETURN, _ERRNO | _ENOSYS),
        _step(_EQUAL, _CLONE3, 0, 1),
        _step(_RETURN, _ERRNO | _ENOSYS),  # its arguments cannot be read here; the C library then calls clone
    ]
    for number in numbers:
        if number is not None:
            program += [_step(_EQUAL, number, 0, 1), _step(_RETURN, _ERRNO | _EPERM)]
    program += [
        _step(_EQUAL, _CLONE[column], 0, 3),
        _step(_LOAD, _ARG0),
        _step(_HAS_BITS, _CLONE_THREAD, 1, 0),
        _step(_RETURN, _ERRNO | _EPERM),
        _step(_RETURN, _ALLOW),
    ]
    return b"".join(program)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)
