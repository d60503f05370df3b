"""A ReAct agent of LangChain with a tool."""

from langchain.agents import create_agent

from trial_apps.questions import MODELS, asked, requests, said_last
from vinelm import Loop, Stage, Template, VineLM, Workflow

vine = VineLM(MODELS)
llm = vine.chat_model("model")


def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


app = create_agent(llm, [add], system_prompt="You calculate. Use the tool.")
workflow = Workflow(
    name="agent",
    template=Template((Loop((Stage("model"),), times=3),)),
    build=lambda _: app,
    requests=[request for request in requests(300) if "+" in request.data["question"]][:160],
    inputs=asked,
    labels=("answer",),
    score=said_last,
)
