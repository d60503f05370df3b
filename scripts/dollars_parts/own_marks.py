"""VineLM's own marks and leaders in a replay: the product's `CachePoints`, on virtual time, with prompts without a text."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Sequence
from concurrent.futures import Future

from dollars_parts.cache_rules import Block, chained, steps_of_blocks

from vinelm.catalog import Model, Price
from vinelm.clock import VirtualClock
from vinelm.prompts.cache_points import CachePoints, PromptCall, Reuse
from vinelm.prompts.shape import Point, Shape


class OwnMarks:
    """What VineLM would do with each call. Its clock is set by the replay."""

    def __init__(self, models: Iterable[str], price: Price, *, takes_marks: bool, leads: bool) -> None:
        self.clock = VirtualClock()
        self._takes_marks, self._leads = takes_marks, leads
        reuse = Reuse()
        self._points = {
            name: CachePoints(
                Model(name=name, provider="bench", model_id=name, engine=name, price=price, cache_points="auto"),
                takes_marks=takes_marks,
                reuse=reuse,
                clock=self.clock,
            )
            for name in models
        }

    def prompt(self, stage: str, blocks: Sequence[Block]) -> PromptCall:
        """The prompt of one call."""
        keys, ends = chained("", blocks)
        shape = Shape(
            array("Q", map(_digest, steps_of_blocks(blocks))),
            tuple(Point(_digest(key), end) for key, end in zip(keys, ends, strict=True)),
        )
        return PromptCall.of(stage, shape, takes_marks=self._takes_marks, may_wait=self._leads)

    def leader(self, model: str, prompt: PromptCall) -> Future[None] | None:
        """Whom the call waits for."""
        return self._points[model].leader(prompt)

    def longest_wait_s(self, model: str) -> float:
        """How long at most."""
        return self._points[model].longest_wait_s

    def place(self, model: str, prompt: PromptCall) -> tuple[int, ...]:
        """The parts that are marked."""
        self._points[model].place(prompt)
        return prompt.marked_parts

    def end(self, model: str, prompt: PromptCall) -> None:
        """Note that the call has ended."""
        self._points[model].end(prompt)


def _digest(key: Hashable) -> int:
    return hash(key) & (2**64 - 1)
