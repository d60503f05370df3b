"""A chat over several turns of one thread."""

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph

from trial_apps.questions import MODELS, asked, requests, said_last
from vinelm import Stage, Template, VineLM, Workflow

vine = VineLM(MODELS)
llm = vine.chat_model("reply")
polisher = vine.chat_model("polish")


def reply(state: MessagesState):
    return {"messages": [llm.invoke([("system", "Answer with a number only."), *state["messages"][-3:]])]}


def polish(state: MessagesState):
    question, draft = state["messages"][-2:]
    return {"messages": [polisher.invoke([("system", f"A draft said {draft.text}: number only."), question])]}


builder = StateGraph(MessagesState)
builder.add_node("reply", reply)
builder.add_node("polish", polish)
builder.add_edge(START, "reply")
builder.add_edge("reply", "polish")
builder.add_edge("polish", END)
app = builder.compile(checkpointer=InMemorySaver())

workflow = Workflow(
    name="multi-turn",
    template=Template((Stage("reply"), Stage("polish"))),
    build=lambda _: app,
    requests=requests(),
    inputs=asked,
    labels=("answer",),
    score=said_last,
)
THREADS = 20  # of three turns each
