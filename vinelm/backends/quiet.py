"""SDKs' debug records quote prompts, answers and signed headers. They are dropped, whatever level an application logs at."""

from __future__ import annotations

import logging


def keep_quiet(*names: str) -> None:
    """Drop the debug records of these loggers; what is louder stays."""
    for name in names:
        logger = logging.getLogger(name)
        if _is_loud not in logger.filters:
            logger.addFilter(_is_loud)


def _is_loud(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG
