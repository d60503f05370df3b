"""One recorded LLM call: :class:`LoggedCall`, which the readers make."""

from vinelm.replay.formats.call import LoggedCall

__all__ = ["LoggedCall"]
