"""Assigns each request to a plan, to one of two plans, or to the current setup."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypedDict, TypeVar

Part = TypeVar("Part")
FOLLOWS, CANARY, MIXTURE = "mixture:follows:", "canary:", "mixture:"
"""Salts: the draws of one request for different questions are independent."""


def place_of(text: str) -> float:
    """Return a pseudo-random number in [0, 1) that depends only on the text, and is the same in every process."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) / 2**64


@dataclass(frozen=True)
class Assignment(Generic[Part]):
    """The alternatives (plans or setups) between which requests are divided at random, each with its share of the
    requests.

    Args:
        parts: pairs (share of the requests, alternative); the shares add up to 1.
        salt: a text in front of the hashed key; another salt gives an independent assignment.
    """

    parts: tuple[tuple[float, Part], ...]
    salt: str = MIXTURE

    @classmethod
    def of_share(cls, share: float, part: Part, rest: Part, salt: str = MIXTURE) -> Assignment[Part]:
        """Return an assignment that gives the fraction ``share`` of the requests to ``part``, and all others to ``rest``."""
        return cls(((share, part), (1.0 - share, rest)), salt)

    def of(self, key: str) -> Part:
        """Return the alternative, such as a plan, for a key, such as a request's id. It is the same in every process."""
        at = place_of(self.salt + key) if len(self.parts) > 1 else 0.0
        for share, part in self.parts[:-1]:
            if at < share:
                return part
            at -= share
        return self.parts[-1][1]


class KeptAssigned(TypedDict, total=False):
    """The part of a request's assignment to a plan that is stored with the request's path; see :class:`Assigned`.

    Another process that continues the request reads these fields, because it must follow the same assignment.

    Attributes:
        is_plan: whether the request runs the plan; False means the current setup.
        bound: the objective's limit with which the request is planned, if requests are divided between two plans.
    """

    is_plan: bool
    bound: float


class Assigned(NamedTuple):
    """The plan or setup that one request was assigned to run.

    Attributes:
        is_plan: whether the request runs the plan; False means the current setup.
        bound: if requests are divided between two plans, the objective's limit with which this request is planned
            (:meth:`~vinelm.objective.Objective.drawn`); None means the objective's own limit.
        is_trial: whether a canary (a trial of the plan on some requests) made the assignment, which then holds for all
            runs of the request.
    """

    is_plan: bool = True
    bound: float | None = None
    is_trial: bool = False

    @property
    def kept(self) -> KeptAssigned:
        """The fields to store with the request's path, so that a resumed request keeps its plan; empty if no field has
        to be stored.
        """
        kept: KeptAssigned = {"is_plan": self.is_plan} if self.is_trial else {}
        return kept if self.bound is None else {**kept, "bound": self.bound}

    def going_on(self, kept: KeptAssigned) -> Assigned:
        """Return the assignment of a resumed request; ``kept`` has the fields that an earlier run has stored with the
        request's path.

        The result's ``bound`` is taken from ``kept``; it is None if ``kept`` lacks it. A stored ``is_plan`` is used only if
        a canary made the assignment.
        """
        is_plan = kept.get("is_plan", self.is_plan) if self.is_trial else self.is_plan
        return Assigned(is_plan, kept.get("bound"), self.is_trial)


ALL = Assigned()
"""The assignment if one plan serves all requests."""
