"""A small graph: towns, the railways between them, and what can be looked up in it."""

import random

from shapes.towns import FACTS, NAMES


def railways():
    """The neighbours of each town: a ring and some shortcuts; sorted."""
    rng = random.Random(13)
    pairs = {(town, NAMES[place - 1]) for place, town in enumerate(NAMES)}
    pairs |= {tuple(rng.sample(NAMES, 2)) for _ in range(12)}
    both = pairs | {(other, one) for one, other in pairs}
    return {town: sorted(other for one, other in both if one == town) for town in NAMES}


RAILS = railways()


def look_up(query: str) -> str:
    """What ``rail from TOWN`` or ``population of TOWN, TOWN`` finds, or an error."""
    what, _, named = query.partition(" of ") if " of " in query else query.partition(" from ")
    towns = named.split(", ")
    unknown = [town for town in towns if town not in RAILS]
    if unknown or what not in ("rail", "population"):
        return f"error: cannot look up {query!r}"
    if what == "rail":
        return ", ".join(sorted({other for town in towns for other in RAILS[town]}))
    return ", ".join(f"{town} {FACTS[town, 'population']}" for town in towns)
