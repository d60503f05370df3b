"""The same agent with a typed answer, routed by the middleware."""

from langchain.agents import create_agent
from pydantic import BaseModel, Field

from trial_apps.questions import MODELS, asked, requests
from vinelm import Loop, Stage, Template, VineChatModel, VineLM, VineMiddleware, Workflow


class Answer(BaseModel):
    """The result."""

    answer: int = Field(ge=0, description="the number")


def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


def build(vine):
    llm = VineChatModel(vine=vine, stage="model")
    return create_agent(llm, [add], middleware=[VineMiddleware(vine)], response_format=Answer)


vine = VineLM(MODELS)
workflow = Workflow(
    name="agent-structured",
    template=Template((Loop((Stage("model"),), times=3),)),
    build=build,
    requests=[request for request in requests(300) if "+" in request.data["question"]][:160],
    inputs=asked,
    labels=("answer",),
    score=lambda request, state: (
        state["structured_response"].answer == int(request.data["answer"]) if state.get("structured_response") else False
    ),
)
app = build(vine)
