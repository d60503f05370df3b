"""A small knowledge base of made-up towns, with a retriever that counts shared words."""

import random
import re

NAMES = [
    "Arnfeld",
    "Belloch",
    "Corvale",
    "Dunmere",
    "Estorp",
    "Farnay",
    "Gilsund",
    "Hartwick",
    "Ibdale",
    "Jorvin",
    "Kelmoor",
    "Lundby",
    "Marstow",
    "Norrick",
    "Ostvale",
    "Penhurst",
    "Quarley",
    "Rosvik",
    "Selby",
    "Tarnow",
]
PARAPHRASES = {
    "population": "How many people live in {town}?",
    "founded": "When did people first settle in {town}?",
    "elevation": "How high above the sea does {town} lie?",
    "visitors": "How many guests come to {town} each year?",
}


def facts():
    """The number of each (town, attribute)."""
    rng = random.Random(7)
    low, high = {"population": 900, "founded": 900, "elevation": 3, "visitors": 100}, {"founded": 1900}
    return {(town, name): rng.randrange(low[name], high.get(name, 9000)) for town in NAMES for name in PARAPHRASES}


FACTS = facts()


def sentence(town, attribute):
    return f"{town}: {attribute} {FACTS[town, attribute]}."


STORE = [sentence(town, attribute) for town, attribute in FACTS if attribute in ("population", "founded")]
"""The documents of the vector store; the web has all."""
WEB = [sentence(*key) for key in FACTS]


def words(text):
    return set(re.findall(r"\w+", text.lower()))


def search(question, documents, k=2):
    """The ``k`` documents that share the most words with the question; ties by their order."""
    asked = words(question)
    ranked = sorted(documents, key=lambda document: -len(asked & words(document)))
    return ranked[:k]
