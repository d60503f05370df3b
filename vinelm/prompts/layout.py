"""What the prompts of a workflow have in common, and whether another order of their messages would let caches keep more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from vinelm.prompts.radix import PromptTree, TokensByLabel
from vinelm.prompts.shape import CACHE_MINIMUM, shape_of

_LEAST_GAIN = 0.05
_KEY = b"texts that are at hand and are not kept"


@dataclass(frozen=True, slots=True)
class PromptPart:
    """A message of a prompt, or a tool.

    Args:
        name: how an author knows it: the state key that its text has, or its role and position; once in a prompt.
        text: canonical, see :func:`vinelm.backends.turns.prompt_parts`.
        is_movable: a message of the application that could stand elsewhere: neither a tool, a system message nor a turn.
    """

    name: str
    text: str
    is_movable: bool


@dataclass(frozen=True, slots=True)
class SeenPrompt:
    """The prompt of one call of a stage, for one request."""

    stage: str
    request: str
    parts: tuple[PromptPart, ...]


@dataclass(frozen=True, slots=True)
class StagePrompts:
    """The prompts of one stage. Tokens are estimates from the length of the text.

    Args:
        stage: its name.
        calls: how many were seen.
        tokens: mean of a call by label.
        is_static_cached: the static part reaches :data:`~vinelm.prompts.shape.CACHE_MINIMUM`.
    """

    stage: str
    calls: int
    tokens: TokensByLabel
    is_static_cached: bool

    def to_dict(self) -> dict[str, object]:
        """Return plain JSON types."""
        tokens = {name: round(value, 1) for name, value in self.tokens._asdict().items()}
        return {"stage": self.stage, "calls": self.calls, "tokens": tokens, "is_static_cached": self.is_static_cached}


@dataclass(frozen=True, slots=True)
class Move:
    """A better order: ``moved`` before ``before``, in the prompts of ``stages``. ``reusable`` is what it would be then."""

    moved: str
    before: str
    stages: tuple[str, ...]
    reusable: float


@dataclass(frozen=True, slots=True)
class PromptLayout:
    """What the prompts of a few requests have in common.

    Args:
        requests: how many.
        stages: their prompts.
        reusable: the share of all prompt tokens, in [0, 1], that a cache had from an earlier call if all stages ran on one
            model: prefixes of at least :data:`~vinelm.prompts.shape.CACHE_MINIMUM` tokens.
        move: the best change of order; None where none pays. It changes the prompt, and so perhaps the answers.
    """

    requests: int
    stages: tuple[StagePrompts, ...]
    reusable: float
    move: Move | None

    def to_dict(self) -> dict[str, object]:
        """Return plain JSON types; no text of a prompt is in them."""
        move = None if self.move is None else {**asdict(self.move), "stages": list(self.move.stages)}
        stages = [stage.to_dict() for stage in self.stages]
        return {"requests": self.requests, "stages": stages, "reusable": self.reusable, "move": move}


def layout_of(prompts: Sequence[SeenPrompt]) -> PromptLayout:
    """Return what the prompts have in common, and the one move of a whole message that makes most of them reusable. Pure.

    Every pair of names is tried, in each prompt that has both, with everything behind it in its place.
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
    """Return what the prompts of each stage in the tree have in common."""
    found = tree.by_stage().items()
    return tuple(StagePrompts(stage, calls, tokens, tokens.static >= CACHE_MINIMUM) for stage, (calls, tokens) in found)


def _tried(prompts: Iterable[SeenPrompt]) -> tuple[PromptTree, float]:
    """The tree of the prompts, and the share of their tokens that an earlier one has as a prefix long enough for a cache."""
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
    """(moved, before): two movable messages, the moved one further down now."""
    names = [part.name for part in prompt.parts if part.is_movable]
    return [(moved, before) for place, moved in enumerate(names) for before in names[:place]]


def _moved(prompt: SeenPrompt, moved: str, before: str) -> SeenPrompt:
    """The prompt with that move; itself where it has not both, in this order."""
    if (moved, before) not in _pairs(prompt):
        return prompt
    parts = {part.name: part for part in prompt.parts}
    one = parts.pop(moved)
    order = [both for name, part in parts.items() for both in ([one, part] if name == before else [part])]
    return SeenPrompt(prompt.stage, prompt.request, tuple(order))
