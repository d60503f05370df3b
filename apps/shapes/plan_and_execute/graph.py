"""Plan and execute: a planner writes steps, an agent carries out the first one, a replanner goes on or answers."""

import operator
from typing import Annotated, TypedDict

from langchain.agents import create_agent
from langchain_core.prompts import ChatPromptTemplate
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel, Field
from shapes.shop import calculate, price


class PlanExecute(TypedDict, total=False):
    input: str
    plan: list[str]
    past_steps: Annotated[list[tuple[str, str]], operator.add]
    response: str


class Plan(BaseModel):
    """Plan to follow in future."""

    steps: list[str] = Field(description="different steps to follow, in sorted order")


class Response(BaseModel):
    """Response to user."""

    response: str


class Act(BaseModel):
    """Action to perform."""

    action: Response | Plan = Field(description="Response to answer the user, Plan if tools are still needed")


planner_prompt = ChatPromptTemplate.from_template("Come up with a step by step plan, one price per step: {input}")
replanner_prompt = ChatPromptTemplate.from_template(
    "The objective: {input}\nThe plan: {plan}\nDone so far: {past_steps}\nUpdate the plan, or answer with the sum in EUR."
)


def build(vine):
    llm = vine.chat_model()
    planner = planner_prompt | llm.with_structured_output(Plan)
    replanner = replanner_prompt | llm.with_structured_output(Act)

    def execute_step(state: PlanExecute, model):
        agent_executor = create_agent(model, [price, calculate], system_prompt="Do one step. Answer with the number only.")
        task = state["plan"][0]
        agent_response = agent_executor.invoke({"messages": [("user", task)]})
        return {"past_steps": [(task, agent_response["messages"][-1].text)]}

    def plan_step(state: PlanExecute):
        return {"plan": planner.invoke({"input": state["input"]}).steps}

    def replan_step(state: PlanExecute):
        output = replanner.invoke(state)
        if isinstance(output.action, Response):
            return {"response": output.action.response}
        return {"plan": output.action.steps}

    def should_end(state: PlanExecute):
        return END if state.get("response") else "agent"

    workflow = StateGraph(PlanExecute)
    workflow.add_node("planner", plan_step)
    workflow.add_node("agent", vine.stage("agent", execute_step))
    workflow.add_node("replan", replan_step)
    workflow.add_edge(START, "planner")
    workflow.add_edge("planner", "agent")
    workflow.add_edge("agent", "replan")
    workflow.add_conditional_edges("replan", should_end, ["agent", END])
    return workflow.compile()
