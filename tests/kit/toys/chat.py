"""The toy as an application that holds its models at module level: one changed line, no wrapped stage."""

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph

from kit.toys.profiling import State, catalog_for, check, finished, plain_edge, toy
from vinelm import VineLM

APP_VINE = VineLM(catalog_for(toy()), {"test": None})
"""The application's own: it has no backend, so that a call which reaches it fails."""
llm = APP_VINE.chat_model()
writer, mender = APP_VINE.chat_model("generate"), APP_VINE.chat_model("repair")
PROMPT = ChatPromptTemplate.from_template("question {question}, answer, please")
chain = PROMPT | writer | StrOutputParser()
mend_chain = PROMPT | mender.with_retry(stop_after_attempt=2, wait_exponential_jitter=False) | StrOutputParser()


def by_chain(state: State) -> State:
    return {"answer": chain.invoke({"question": state["question"]}), "log": ["generate"]}


def mend_by_chain(state: State) -> State:
    return {"answer": mend_chain.invoke({"question": state["question"]}), "log": [*state["log"], "repair"]}


def by_name_of_node(state: State) -> State:
    return {"answer": ask(state), "log": [*state.get("log", ()), "either"]}


def ask(state):
    return llm.invoke(state["question"]).text


async def asked_async(state: State) -> State:
    answer = await llm.ainvoke(state["question"])
    return {"answer": answer.text, "log": [*state.get("log", ()), "either"]}


@tool
def consult(question: str) -> str:
    """Ask."""
    return llm.bind_tools([]).invoke(question).text


def by_tool(state: State) -> State:
    try:
        answer = consult.invoke({"question": state["question"]})
    except Exception:  # an application that forgives its models everything
        answer = "broken"
    return {"answer": answer, "log": [*state.get("log", ()), "either"]}


FORMS = {
    "chains": (by_chain, mend_by_chain),
    "functions": (by_name_of_node, by_name_of_node),
    "async": (asked_async, asked_async),
    "tools": (by_tool, by_tool),
}


def compiled(nodes, edge=plain_edge):
    graph = StateGraph(State)
    for name, node in zip(("generate", "repair"), nodes, strict=True):
        graph.add_node(name, node)
    graph.add_node("check", check)
    graph.add_edge(START, "generate")
    graph.add_edge("generate", "check")
    graph.add_edge("repair", "check")
    graph.add_conditional_edges("check", edge, ["repair", END])
    return graph.compile()


def build_with_route(vine, form="chains"):
    return compiled(FORMS[form], vine.route(finished, again="repair", end=END))


def chat_toy(form="chains", **changes):
    """Built before anything was known of VineLM's profiler, as applications are."""
    app = compiled(FORMS[form])
    return toy(**({"build": lambda vine: app} | changes))
