"""An agent inside a node: its calls are in a subgraph, and are replayed while profiling."""

from langchain.agents import create_agent
from langgraph.graph import END, START, MessagesState, StateGraph

from trial_apps.questions import MODELS, asked, requests, said_last
from vinelm import Stage, Template, VineLM, Workflow

vine = VineLM(MODELS)
llm = vine.chat_model("research")
agent = create_agent(llm, [])


def research(state: MessagesState):
    return {"messages": [agent.invoke({"messages": state["messages"]})["messages"][-1]]}


builder = StateGraph(MessagesState)
builder.add_node("research", research)
builder.add_edge(START, "research")
builder.add_edge("research", END)
app = builder.compile()
workflow = Workflow(
    name="inner-agent",
    template=Template((Stage("research"),)),
    build=lambda _: app,
    requests=requests(),
    inputs=asked,
    labels=("answer",),
    score=said_last,
)
