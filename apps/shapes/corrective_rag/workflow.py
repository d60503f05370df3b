"""Corrective RAG over made-up towns: half of the questions ask for what only the web knows."""

import random

from shapes.corrective_rag.graph import build
from shapes.kit import Prompt, Shape
from shapes.towns import FACTS, PARAPHRASES, sentence

from vinelm import Branch, Request, Stage, Template, Workflow


def requests(count=1000):
    rng, keys = random.Random(2), list(FACTS)
    rows = []
    for number in range(count):
        town, attribute = rng.choice(keys)
        is_plain = number % 2 == 0  # the words of the document stand in the question
        question = f"What is the {attribute} of {town}?" if is_plain else PARAPHRASES[attribute].format(town=town)
        row = {"question": question, "town": town, "attribute": attribute, "answer": str(FACTS[town, attribute])}
        rows.append(Request(f"q{number}", row))
    return rows


def gold(prompt: Prompt):
    return sentence(prompt.row["town"], prompt.row["attribute"])


def grade(prompt: Prompt, is_right: bool):
    return {"binary_score": "yes" if (gold(prompt) in prompt.text) == is_right else "no"}


def rewrite(prompt: Prompt, is_right: bool):
    return f"{prompt.row['attribute']} {prompt.row['town']}" if is_right else f"about {prompt.row['town']}"


def answer(prompt: Prompt, is_right: bool):
    if gold(prompt) not in prompt.text:
        return "I do not know"
    return prompt.row["answer"] if is_right else str(prompt.off(int(prompt.row["answer"])))


shape = Shape(
    Workflow(
        name="corrective-rag",
        template=Template(
            (
                Stage("grade_documents", answerable=False),
                Branch({"transform_query": (Stage("transform_query", answerable=False),), "generate": ()}),
                Stage("generate"),
            )
        ),
        build=build,
        requests=requests(),
        labels=("answer", "town", "attribute"),
        score=lambda request, state: state["generation"] == request.data["answer"],
    ),
    answers={"grade_documents": grade, "transform_query": rewrite, "generate": answer},
    skills={"grade_documents": {"filters": -2.0}, "transform_query": {"joins": 0.4}, "generate": {"nesting": -1.0}},
    subject=lambda prompt: prompt.last.text if prompt.stage == "grade_documents" else "",
)
