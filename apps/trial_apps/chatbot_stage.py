"""A chatbot with a tool, written as a graph; its node is wrapped."""

from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from trial_apps.questions import MODELS, asked, requests, said_last
from vinelm import Loop, Stage, Template, VineLM, Workflow


def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


def chatbot(state: MessagesState, model):
    return {"messages": [model.bind_tools([add]).invoke(state["messages"])]}


def build(vine):
    graph = StateGraph(MessagesState)
    graph.add_node("chatbot", vine.stage("chatbot", chatbot))
    graph.add_node("tools", ToolNode([add]))
    graph.add_edge(START, "chatbot")
    graph.add_conditional_edges("chatbot", tools_condition)
    graph.add_edge("tools", "chatbot")
    return graph


vine = VineLM(MODELS)
app = build(vine).compile()
workflow = Workflow(
    name="chatbot-stage",
    template=Template((Loop((Stage("chatbot"),), times=3),)),
    build=build,
    requests=[request for request in requests(300) if "+" in request.data["question"]][:160],
    inputs=asked,
    labels=("answer",),
    score=said_last,
)
