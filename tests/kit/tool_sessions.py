"""Sessions of a made-up shop, whose reads follow from what the user says and from earlier results."""

import json
import random

from vinelm.tools.call import ToolEvent, canonical_key

READS = ("get_user", "get_order", "list_offers", "convert")


def a_call(request_id, seq, tool, arguments, result, *, is_ok=True, started_s=0.0, ended_s=0.0):
    return ToolEvent(
        request_id=request_id, seq=seq, tool=tool, key=canonical_key(tool, arguments), is_ok=is_ok, arguments=arguments,
        result=result, started_s=started_s, ended_s=ended_s,
    )  # fmt: skip


def a_session(number, *, model_s=4.0, tool_s=2.0):
    """The user names herself, her orders are read one by one, and one of them is cancelled; some ask for the offers, too."""
    rng = random.Random(number)
    user = f"{rng.choice(['mia', 'li', 'noa'])}_{rng.choice(['rossi', 'khan'])}_{rng.randrange(1000, 9999)}"
    orders = [f"#W{rng.randrange(10**6, 10**7)}" for _ in range(rng.randrange(2, 5))]
    events = [f"Hello, my id is {user}. What about my orders?"]
    now = 0.0

    def add(tool, arguments, result):
        nonlocal now
        now += model_s
        events.append(a_call(f"r{number}", len(events), tool, arguments, result, started_s=now, ended_s=now + tool_s))
        now += tool_s

    add("get_user", {"user_id": user}, {"name": {"first": "A"}, "orders": orders})
    for order in orders:
        add("get_order", {"order_id": order}, {"order_id": order, "items": [{"item_id": rng.randrange(10**5, 10**6)}]})
    if number % 2:
        add("convert", {"amount": 10 * number, "to": "EUR"}, {"amount": 9.0 * number})
    add("cancel_order", {"order_id": orders[0]}, {"order_id": orders[0], "status": "cancelled"})
    events.append("Thanks. Are there any offers?")
    add("list_offers", {}, {"offers": ["tea"]})
    return events


def shop_sessions(count=24, **times):
    return [a_session(number, **times) for number in range(count)]


def write_log(path, sessions):
    """Write a log of OpenAI's messages."""
    lines = []
    for at, session in enumerate(sessions):
        messages = []
        for event in session:
            if isinstance(event, str):
                messages.append({"role": "user", "content": event})
                continue
            call = {"name": event.tool, "arguments": json.dumps(event.arguments)}
            messages.append({"role": "assistant", "content": None, "tool_calls": [{"id": f"c{event.seq}", "function": call}]})
            messages.append({"role": "tool", "tool_call_id": f"c{event.seq}", "content": json.dumps(event.result)})
        lines.append(json.dumps({"session": f"s{at}", "messages": messages}))
    path.write_text("\n".join(lines), encoding="utf-8")
    return path
