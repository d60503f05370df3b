"""Human in the loop: while profiling, a function answers for the person."""

import random

from shapes.human_in_the_loop.graph import build
from shapes.kit import Prompt, Shape

from vinelm import Loop, Request, Stage, Template, Workflow

NO_FEEDBACK = "No feedback yet"


def requests(count=1000):
    rng, rows = random.Random(12), []
    for number in range(count):
        a, b, c = rng.randrange(11, 99), rng.randrange(11, 99), rng.randrange(2, 900)
        row = {"topic": f"What is {a} * {b} + {c}?", "answer": str(a * b + c), "is_lenient": number % 7 == 3}
        rows.append(Request(f"q{number}", row))
    return rows


def person(request: Request, value):
    """Sends back what is wrong; one person in seven takes everything."""
    is_fine = value["generated_post"] == request.data["answer"] or request.data["is_lenient"]
    return "done" if is_fine else "That cannot be right: check the last digit."


def draft(prompt: Prompt, is_right: bool):
    return prompt.row["answer"] if is_right else str(prompt.off(int(prompt.row["answer"])))


shape = Shape(
    Workflow(
        name="human-in-the-loop",
        template=Template((Loop((Stage("model"),), times=4),)),
        build=build,
        requests=requests(),
        labels=("answer", "is_lenient"),
        score=lambda request, state: state.get("final") == request.data["answer"],
        answer_interrupt=person,
    ),
    answers={"model": draft},
    skills={"model": {"aggregation": 1.2}},
    demands=lambda prompt: {} if NO_FEEDBACK in prompt.text else {"aggregation": -0.6},
)
