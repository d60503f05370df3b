"""The example whose tools are called ahead: the shop answers, the agent reads it, and what runs ahead changes no answer."""

import json
import os
import signal
import subprocess
import sys
import time
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from langchain_core.messages import HumanMessage

from examples.shop.app import application, main, question
from examples.shop.server import CUSTOMERS, Shop, customer_id, serving
from vinelm import Speculation


def total_of(shop, number):
    """What the tables say."""
    orders = shop.answer("customers", customer_id(number))["orders"]
    wanted = orders[-1:] if "newest" in question(number) else orders
    items = [item for order in wanted for item in shop.answer("orders", order)["items"]]
    total = sum(item["pieces"] * shop.answer("products", item["product"])["price"] for item in items)
    return f"{', '.join(wanted)}: {total:.2f} EUR"


def test_the_shop_answers_on_this_machine_only_and_knows_what_it_does_not_know():
    with serving(Shop()) as address:
        assert address.startswith("http://127.0.0.1:")
        with urlopen(f"{address}/orders/%23W1410") as answer:
            assert json.load(answer)["items"]
        for unknown in ("orders/%23W1", "customers/x'%20OR%20'1'='1", "tables/items", ""):
            with pytest.raises(HTTPError, match="404"):
                urlopen(f"{address}/{unknown}")


def test_the_answers_are_those_of_the_tables_ahead_or_not():
    shop = Shop()
    with serving(shop) as address:
        vine, agent, _ = application(shop, address)

        class Eager:
            """Guesses every order of the customer, and ones that do not exist."""

            def candidates(self, history):
                results = [one.result for one in history if not isinstance(one, str)]
                orders = next((found["orders"] for found in results if "orders" in found), [])
                return [("get_order", {"order": order}, 0.9) for order in ("#W1", *orders)]

        vine.load(patterns=Eager())
        for number in (41, 43):
            asked = {"messages": [HumanMessage(question(number))]}
            for speculate in (None, Speculation()):
                state = agent.invoke(asked, context=vine.context(speculate=speculate))
                assert state["messages"][-1].text == total_of(shop, number)
        assert vine.tool_counts["started"] > 0
        stranger = agent.invoke({"messages": [HumanMessage("What do my orders cost in all? I am nobody_1.")]})
        assert stranger["messages"][-1].text == "I do not know you."
    assert all(total_of(shop, number) for number in range(CUSTOMERS))


@pytest.mark.parametrize("options", [["--limit", "0"], ["--think-s", "-1"], ["--distance-s", "nan"]])
def test_wrong_options_are_refused(options, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(options)
    assert "give --limit at least 1, and seconds >= 0" in capsys.readouterr().err


@pytest.mark.long
def test_one_command_learns_serves_and_compares(capfd):
    assert main(["--limit", "2", "--think-s", "0.01", "--distance-s", "0.01"]) == 0
    said = capfd.readouterr().out
    assert "Held out by request" in said
    assert "mia_rossi_1040" in said
    assert "All answers are the same: yes" in said


@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_an_interrupt_ends_it_without_a_traceback():
    words = [sys.executable, "-m", "examples.shop.app", "--think-s", "30"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("A scripted model"):
            break
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors.strip()) == (130, "interrupted")
