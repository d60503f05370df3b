"""Finds what the prompts of a workflow have in common, and whether a cache could reuse more in another message order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from vinelm.prompts.radix import PromptTree, TokensByLabel
from vinelm.prompts.shape import CACHE_MINIMUM, shape_of

_LEAST_GAIN = 0.05
_KEY = b"texts that are at hand and are not kept"


class PromptPart(NamedTuple):
    """A message or tool of a prompt: its canonical text, and a name for reports, which is unique in the prompt.

    ``is_movable`` means that the message could be placed elsewhere: it is not a tool, system message or turn of a
    conversation.
    """

    name: str
    text: str
    is_movable: bool


class SeenPrompt(NamedTuple):
    """The prompt of one call: the name of its stage, the id of its request, and its parts in order."""

    stage: str
    request: str
    parts: tuple[PromptPart, ...]


@dataclass(frozen=True, slots=True)
class StagePrompts:
    """How much the prompts of one stage share with other prompts.

    Attributes:
        stage: The stage.
        calls: The number of calls.
        tokens: The mean number of tokens per call in each group of :class:`~vinelm.prompts.radix.TokensByLabel`.
        is_static_cached: Whether the beginning that nearly all calls of the stage share is long enough for most caches.
    """

    stage: str
    calls: int
    tokens: TokensByLabel
    is_static_cached: bool


@dataclass(frozen=True, slots=True)
class Move:
    """A better order of messages: in the prompts of ``stages``, the message named ``moved`` should come directly before
    the one named ``before``.

    ``reusable`` is the share of all tokens, in [0, 1], that a cache could reuse in this order.
    """

    moved: str
    before: str
    stages: tuple[str, ...]
    reusable: float


@dataclass(frozen=True, slots=True)
class PromptLayout:
    """What the prompts of a few requests have in common, without the prompts' text.

    ``reusable`` is the share of all tokens, in [0, 1], that a cache would have from an earlier call. It assumes that
    all stages run on one model, and counts prefixes of at least :data:`~vinelm.prompts.shape.CACHE_MINIMUM` tokens.
    ``move`` is the best change of order, which changes the prompt and so perhaps the answers; None if no change helps
    enough.
    """

    requests: int
    stages: tuple[StagePrompts, ...]
    reusable: float
    move: Move | None


def layout_of(prompts: Sequence[SeenPrompt]) -> PromptLayout:
    """Return what the prompts have in common, and the best move of one message: the one with which a cache could reuse
    the most tokens. Has no side effects.

    Every pair of message names is tried: in each prompt with both, one message is moved directly before the other.
    """
    tree, reusable = _tried(prompts)
    pairs = dict.fromkeys(pair for prompt in prompts for pair in _pairs(prompt))
    tried = {pair: _tried([_moved(prompt, *pair) for prompt in prompts])[1] for pair in pairs}
    best = max(tried, key=lambda pair: tried[pair], default=None)
    move = None
    if best is not None and tried[best] >= reusable + _LEAST_GAIN:
        stages = dict.fromkeys(prompt.stage for prompt in prompts if best in _pairs(prompt))
        move = Move(*best, tuple(stages), tried[best])
    return PromptLayout(len({prompt.request for prompt in prompts}), stages_of(tree), reusable, move)


def stages_of(tree: PromptTree) -> tuple[StagePrompts, ...]:
    """Return one item for each stage in the tree: how much its prompts share with other prompts."""
    found = tree.by_stage().items()
    return tuple(StagePrompts(stage, calls, tokens, tokens.static >= CACHE_MINIMUM) for stage, (calls, tokens) in found)


def _tried(prompts: Iterable[SeenPrompt]) -> tuple[PromptTree, float]:
    """Return (a tree of the prompts, the share of their tokens that a cache could reuse from earlier prompts).

    Only common prefixes of at least ``CACHE_MINIMUM`` tokens count.
    """
    tree = PromptTree()
    total = reused = 0
    for prompt in prompts:
        shape = shape_of([part.text for part in prompt.parts], _KEY)
        known = tree.longest_match(shape)
        reused += known if known >= CACHE_MINIMUM else 0
        total += shape.tokens
        tree.add(prompt.stage, prompt.request, shape)
    return tree, reused / total if total else 0.0


def _pairs(prompt: SeenPrompt) -> list[tuple[str, str]]:
    """Return each pair (later, earlier) of names of messages in the prompt whose order could be changed."""
    names = [part.name for part in prompt.parts if part.is_movable]
    return [(moved, before) for place, moved in enumerate(names) for before in names[:place]]


def _moved(prompt: SeenPrompt, moved: str, before: str) -> SeenPrompt:
    """Return the prompt with message ``moved`` directly before message ``before``.

    The prompt is returned unchanged if it lacks one of the two messages, if one of them may not be moved, or if
    ``moved`` already comes first.
    """
    if (moved, before) not in _pairs(prompt):
        return prompt
    parts = {part.name: part for part in prompt.parts}
    one = parts.pop(moved)
    order = [both for name, part in parts.items() for both in ([one, part] if name == before else [part])]
    return SeenPrompt(prompt.stage, prompt.request, tuple(order))
