"""The bundled tickets: the same everywhere, with labels that the tools and the scorer agree with."""

import hashlib
import random
from collections import Counter

import pytest

from vinelm.workflows.support import support
from vinelm.workflows.support.articles import ARTICLES, find_article
from vinelm.workflows.support.prompts import REPLIES
from vinelm.workflows.support.tickets import DESKS, load_bundled, tickets

MISLEADING = ("I paid good money for this! ", "The app is a mess, by the way. ", "Not sure whether you are the right people. ")
"""Openings that sound like another desk."""
CONTENT = "fe43316cb4b5e18928834816bc389c58524fe556594f2a9bf7e30f4d46732ac2"


@pytest.fixture(scope="module")
def workflow():
    return support()


def test_the_tickets_are_the_same_on_every_machine(workflow):
    digest = hashlib.sha256("".join(request.digest() for request in workflow.requests).encode()).hexdigest()
    assert digest == CONTENT
    assert tickets() == workflow.requests


def test_the_desks_take_turns(workflow):
    desks = Counter(request.data["desk"] for request in workflow.requests)
    assert desks == {"billing": 84, "technical": 84, "other": 60}
    assert set(desks) == set(DESKS)
    first = Counter(request.data["desk"] for request in workflow.requests[:40])
    assert all(abs(first[desk] - desks[desk] * 40 / 228) < 2 for desk in DESKS)
    assert 0.2 < sum(request.data["misleading"] for request in workflow.requests) / 228 < 0.5
    texts = [request.data["ticket"] for request in workflow.requests]
    assert len(set(texts)) == len(texts)
    assert all(
        request.data["misleading"] == any(map(request.data["ticket"].startswith, MISLEADING)) for request in workflow.requests
    )


def test_every_label_is_a_reply_that_its_desk_has(workflow):
    for request in workflow.requests:
        assert request.data["reply"] in REPLIES[request.data["desk"]]
    for desk in DESKS:
        asked = {request.data["reply"] for request in workflow.requests if request.data["desk"] == desk}
        assert asked == set(REPLIES[desk])


def test_a_technical_ticket_has_the_reply_of_its_article(workflow):
    for request in workflow.requests:
        if request.data["desk"] == "technical":
            assert request.data["reply"] == ARTICLES[request.data["article"]].reply


def test_every_query_of_a_label_finds_something(workflow):
    for request in workflow.requests:
        if request.data["desk"] == "billing":
            found = workflow.score.databases.recall(request.data["db_id"], request.data["gold_sql"])
            assert found.status == "ok"
            assert found.rows


def test_the_search_finds_an_article_by_its_own_words_in_any_order():
    for name, article in ARTICLES.items():
        words = list(article.keywords)
        random.Random(name).shuffle(words)
        assert find_article(" ".join(words).upper()) == name
    assert find_article("nothing that we have") is None
    assert find_article("camera") == "KB-101"


def test_the_database_is_built_once(tmp_path):
    first = load_bundled(tmp_path)
    assert load_bundled(tmp_path) == first
    assert [path.name.split("-")[0] for path in tmp_path.iterdir()] == ["support"]
