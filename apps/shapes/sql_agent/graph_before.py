"""SQL agent: look at the tables, write a query, check it, run it, until the model answers."""

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from shapes.sql_agent.database import list_tables_tool, run_query_tool, schema_tool

GENERATE = SystemMessage("You answer questions about a SQL database: write one query, read its result, answer.")
CHECK = SystemMessage("Double check the SQL query for common mistakes. Rewrite it if there are any, else repeat it.")


def build(llm):
    def list_tables(state: MessagesState):
        tool_call = {"name": "sql_db_list_tables", "args": {}, "id": "abc123", "type": "tool_call"}
        tool_message = list_tables_tool.invoke(tool_call)
        response = AIMessage(f"Available tables: {tool_message.content}")
        return {"messages": [AIMessage(content="", tool_calls=[tool_call]), tool_message, response]}

    def call_get_schema(state: MessagesState):
        return {"messages": [llm.bind_tools([schema_tool], tool_choice="any").invoke(state["messages"])]}

    def generate_query(state: MessagesState):
        return {"messages": [llm.bind_tools([run_query_tool]).invoke([GENERATE, *state["messages"]])]}

    def check_query(state: MessagesState):
        tool_call = state["messages"][-1].tool_calls[0]
        user_message = HumanMessage(tool_call["args"]["query"])
        response = llm.bind_tools([run_query_tool], tool_choice="any").invoke([CHECK, user_message])
        response.id = state["messages"][-1].id
        return {"messages": [response]}

    def should_continue(state: MessagesState):
        return "check_query" if state["messages"][-1].tool_calls else END

    builder = StateGraph(MessagesState)
    builder.add_node(list_tables)
    builder.add_node(call_get_schema)
    builder.add_node("get_schema", ToolNode([schema_tool]))
    builder.add_node(generate_query)
    builder.add_node(check_query)
    builder.add_node("run_query", ToolNode([run_query_tool]))
    builder.add_edge(START, "list_tables")
    builder.add_edge("list_tables", "call_get_schema")
    builder.add_edge("call_get_schema", "get_schema")
    builder.add_edge("get_schema", "generate_query")
    builder.add_conditional_edges("generate_query", should_continue, ["check_query", END])
    builder.add_edge("check_query", "run_query")
    builder.add_edge("run_query", "generate_query")
    return builder.compile()
