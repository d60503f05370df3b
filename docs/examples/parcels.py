"""An agent over a parcel service that is far away: it looks up a customer, then each of her parcels."""

import json
import time

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage

from vinelm import Loop, Request, Stage, Template, VineChatModel, VineMiddleware, Workflow

FAR_S = 0.2  # the service is simulated: each look-up takes this long
CUSTOMERS = {
    f"{name}_{10 * at + 1001}": [f"P{1000 * at + k}" for k in range(2 + at % 3)] for at, name in enumerate("abcdefgh" * 3)
}


def customer(customer_id: str) -> dict:
    """A customer and the numbers of her parcels."""
    time.sleep(FAR_S)
    return {"customer": customer_id, "parcels": CUSTOMERS.get(customer_id, [])}


def parcel(number: str) -> dict:
    """Where a parcel is."""
    time.sleep(FAR_S)
    return {"parcel": number, "place": f"depot {sum(map(ord, number)) % 7}"}


def build(vine):
    tools = [vine.tool(customer, read_only=True), vine.tool(parcel, read_only=True)]
    return create_agent(VineChatModel(vine=vine, stage="model"), tools, middleware=[VineMiddleware(vine)])


class Writer:
    """What simulated models say: all look-ups one after the other, and the answer; a wrong one looks nothing up."""

    kinds = ("wrong_aggregate",)

    def skills(self, request):
        return {"aggregation": 0.3}

    def right(self, request, rng):
        calls = [{"name": "customer", "args": {"customer_id": request.id}}]
        calls += [{"name": "parcel", "args": {"number": number}} for number in CUSTOMERS[request.id]]
        return json.dumps({"calls": calls, "answer": request.data["answer"]})

    def wrong(self, request, kind, rng):
        return json.dumps({"calls": [], "answer": "I do not know."})


def question(name):
    text = f"My id is {name}. Where are my parcels?"
    return Request(name, {"question": text, "answer": f"{len(CUSTOMERS[name])} parcels are on their way."})


workflow = Workflow(
    name="parcels",
    template=Template((Loop((Stage("model"),), times=6, memory=1),)),
    build=build,
    requests=[question(name) for name in CUSTOMERS],
    inputs=lambda request: {"messages": [HumanMessage(request.data["question"])]},
    labels=("answer",),
    score=lambda request, state: state["messages"][-1].text == request.data["answer"],
    writer=Writer(),
)
