"""Self-RAG over made-up towns: the question is rewritten until the documents and the answer pass."""

from shapes.corrective_rag.workflow import answer, grade, requests, rewrite
from shapes.kit import Prompt, Shape
from shapes.self_rag.graph import build

from vinelm import Branch, Loop, Stage, Template, Workflow
from vinelm.template import END


def grounded(prompt: Prompt, is_right: bool):
    """Whether the proposed number stands in the documents."""
    facts, proposed = prompt.text.split("Proposed: ")
    return {"binary_score": "yes" if (proposed.strip(".") + "." in facts) == is_right else "no"}


def useful(prompt: Prompt, is_right: bool):
    is_answer = prompt.text.split("Proposed: ")[1] == prompt.row["answer"]
    return {"binary_score": "yes" if is_answer == is_right else "no"}


ANSWER = (
    Loop((Stage("generate", answerable=False), Stage("hallucination_grader")), times=3, early_exit=True),
    Stage("answer_grader"),
    Branch({"useful": END, "not useful": ()}),
)
TURN = (
    Stage("grade_documents", answerable=False),
    Branch({"generate": ANSWER, "transform_query": ()}),
    Stage("transform_query", answerable=False),
)

shape = Shape(
    Workflow(
        name="self-rag",
        template=Template((Loop(TURN, times=4, memory=2),)),
        build=build,
        requests=requests(),
        labels=("answer", "town", "attribute"),
        score=lambda request, state: state.get("generation") == request.data["answer"],
    ),
    answers={
        "grade_documents": grade,
        "transform_query": rewrite,
        "generate": answer,
        "hallucination_grader": grounded,
        "answer_grader": useful,
    },
    skills={
        "grade_documents": {"filters": -2.0},
        "transform_query": {"joins": 0.4},
        "generate": {"nesting": -0.5},
        "hallucination_grader": {"filters": -2.0},
        "answer_grader": {"filters": -2.0},
    },
    subject=lambda prompt: prompt.last.text if prompt.stage == "grade_documents" else "",
)
