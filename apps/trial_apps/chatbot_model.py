"""A chatbot with a tool, written as a graph; its model is made by VineLM."""

from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from trial_apps.questions import MODELS, asked, requests, said_last
from vinelm import Loop, Stage, Template, VineLM, Workflow


def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


vine = VineLM(MODELS)
llm = vine.chat_model("chatbot")
llm_with_tools = llm.bind_tools([add])


def chatbot(state: MessagesState):
    return {"messages": [llm_with_tools.invoke(state["messages"])]}


builder = StateGraph(MessagesState)
builder.add_node("chatbot", chatbot)
builder.add_node("tools", ToolNode([add]))
builder.add_edge(START, "chatbot")
builder.add_conditional_edges("chatbot", tools_condition)
builder.add_edge("tools", "chatbot")
app = builder.compile()

workflow = Workflow(
    name="chatbot-model",
    template=Template((Loop((Stage("chatbot"),), times=3),)),
    build=lambda _: app,
    requests=[request for request in requests(300) if "+" in request.data["question"]][:160],
    inputs=asked,
    labels=("answer",),
    score=said_last,
)
