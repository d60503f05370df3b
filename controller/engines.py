"""Deprecated: see :mod:`vinelm.controller`."""

from vinelm.deprecation import moved

__getattr__ = moved(
    __name__,
    {
        "sglang_requests": "vinelm.controller.sglang_requests",
        "vllm_requests": "vinelm.controller.vllm_requests",
    },
)
