"""Finds what the prompts of a workflow have in common, and whether caches could reuse more if messages were reordered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from vinelm.prompts.radix import PromptTree, TokensByLabel
from vinelm.prompts.shape import CACHE_MINIMUM, shape_of

_LEAST_GAIN = 0.05
_KEY = b"texts that are at hand and are not kept"


class PromptPart(NamedTuple):
    """A message or tool of a prompt: a unique name known to the author, and its canonical text.

    ``is_movable`` means that the message could be placed elsewhere: it is not a tool, system message or turn of a
    conversation.
    """

    name: str
    text: str
    is_movable: bool


class SeenPrompt(NamedTuple):
    """The prompt of one call of a stage, for one request."""

    stage: str
    request: str
    parts: tuple[PromptPart, ...]


@dataclass(frozen=True, slots=True)
class StagePrompts:
    """The prompts of a stage.

    Attributes:
        stage: The stage.
        calls: The number of calls.
        tokens: The mean tokens of a call, by who else sends them.
        is_static_cached: Whether the static part is long enough for most caches.
    """

    stage: str
    calls: int
    tokens: TokensByLabel
    is_static_cached: bool


@dataclass(frozen=True, slots=True)
class Move:
    """A better order: message ``moved`` before message ``before``, in the prompts of ``stages``. ``reusable`` is the
    share of tokens that a cache could then reuse.
    """

    moved: str
    before: str
    stages: tuple[str, ...]
    reusable: float


@dataclass(frozen=True, slots=True)
class PromptLayout:
    """The common parts of the prompts of a few requests, without the prompts' text.

    ``reusable`` is the share of all tokens, in [0, 1], that a cache has from an earlier call if all stages run on one model, in
    prefixes of at least :data:`~vinelm.prompts.shape.CACHE_MINIMUM` tokens. ``move`` is the best change of order; it changes
    the prompt and so perhaps the answers. None if no change helps.
    """

    requests: int
    stages: tuple[StagePrompts, ...]
    reusable: float
    move: Move | None


def layout_of(prompts: Sequence[SeenPrompt]) -> PromptLayout:
    """Return what the prompts have in common, and the single message move that makes most of them reusable. Pure.

    Tries every pair of names, in each prompt that has both, without moving anything else.
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
    """Return the common parts of the prompts of each stage in the tree."""
    found = tree.by_stage().items()
    return tuple(StagePrompts(stage, calls, tokens, tokens.static >= CACHE_MINIMUM) for stage, (calls, tokens) in found)


def _tried(prompts: Iterable[SeenPrompt]) -> tuple[PromptTree, float]:
    """Return the tree of the prompts, and the share of their tokens in cacheable prefixes that an earlier prompt shares."""
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
    """Return pairs (moved, before) of names of movable messages; ``moved`` now comes after ``before``."""
    names = [part.name for part in prompt.parts if part.is_movable]
    return [(moved, before) for place, moved in enumerate(names) for before in names[:place]]


def _moved(prompt: SeenPrompt, moved: str, before: str) -> SeenPrompt:
    """Return the prompt with message ``moved`` before message ``before``; unchanged if it lacks either or has them in this
    order.
    """
    if (moved, before) not in _pairs(prompt):
        return prompt
    parts = {part.name: part for part in prompt.parts}
    one = parts.pop(moved)
    order = [both for name, part in parts.items() for both in ([one, part] if name == before else [part])]
    return SeenPrompt(prompt.stage, prompt.request, tuple(order))
