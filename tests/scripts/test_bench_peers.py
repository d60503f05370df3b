"""The benchmark of other tools: its applications know none of them, its server meters, its edits are what is counted.

No peer is installed here and nothing is fetched: a fake peer and a stand-in for ``langchain_openai`` take their places.
"""

import ast
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
PARTS, SOURCES = SCRIPTS / "peers_parts", SCRIPTS.parent / "apps" / "peers_apps"
KNOWN = {"linear", "branching", "agent"}
STANDS_IN = ("agentopt", "llmrouter", "llmrouter.models", "torch", "sklearn")
FAKE = """
from project import LLM, measured_singles, metered, run, with_llm

def choose(project):
    right = measured_singles(project)
    print(metered()["total_usd"])
    return max(right, key=lambda model: sum(right[model]))

def edited(project, chosen):
    return with_llm(project, LLM.format(today=chosen))

run(choose, edited)
"""
LIGHT = """
from langchain_openai import ChatOpenAI

llm = ChatOpenAI(model="gpt-4")

class Graph:
    def invoke(self, state):
        solution = llm.invoke(state["question"]).text
        return {"answer": llm.invoke(f"Fill in the answer sheet: {state['question']} {solution}").text}

graph = Graph()
"""
CHAT_OPENAI = """
import json, os
from urllib.request import Request, urlopen

class Said:
    def __init__(self, text):
        self.text = text

class ChatOpenAI:
    def __init__(self, model):
        self.model = model

    def invoke(self, text):
        body = json.dumps({"model": self.model, "messages": [{"role": "user", "content": text}]}).encode()
        with urlopen(Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)) as answer:
            return Said(json.load(answer)["choices"][0]["message"]["content"])
"""
LANGCHAIN = """
from langchain_core.language_models.chat_models import SimpleChatModel

Plain = ChatOpenAI

class ChatOpenAI(SimpleChatModel):
    model: str
    _llm_type = "stand-in"

    def _call(self, messages, **kwargs):
        return Plain(self.model).invoke(messages[-1].text).text
"""


@pytest.fixture(autouse=True)
def path(monkeypatch):
    for folder in (PARTS, SCRIPTS):
        monkeypatch.syspath_prepend(str(folder))
    yield
    own = {"bench_peers", "peers_parts", "project"}
    for name in [name for name in sys.modules if name.split(".")[0] in own or name.startswith("peer_")]:
        del sys.modules[name]


def source(app):
    return (SOURCES / f"{app}.py").read_text(encoding="utf-8")


def project(app):
    from peers_parts.questions import PRICES, STAGES, TODAY
    from project import Project

    prices = {model: list(price) for model, price in PRICES[app].items()}
    return Project(app, list(STAGES[app]), TODAY[app], prices, 1.0, source(app))


def asked(app, number=40):
    """Questions that a cheap model answers as well as a dear one, of two kinds."""
    from peers_parts.questions import PRICES, Question, Recorded

    calls = {model: Recorded("B" if model != next(iter(PRICES[app])) else "A", 100, 10) for model in PRICES[app]}
    return [Question(f"q{i}", f"Question number {i}: B?", "B", ("science", "commonsense")[i % 2], calls) for i in range(number)]


@pytest.mark.parametrize("app", sorted(KNOWN))
def test_the_applications_know_none_of_the_tools(app):
    from peers_parts.questions import APPS

    assert set(APPS) == KNOWN == {path.stem for path in SOURCES.glob("*.py")}
    nodes = [node for node in ast.walk(ast.parse(source(app))) if isinstance(node, ast.Import | ast.ImportFrom)]
    imported = " ".join(ast.unparse(node) for node in nodes)
    assert not any(name in imported for name in ("vinelm", "agentopt", "cascadeflow", "litellm", "llmrouter"))
    assert project(app).llm in source(app)


CHOSEN = {
    "peer_single": "cheap",
    "peer_agentopt": {"solve": "a", "write": "b", "reception": "a", "science_desk": "b", "commonsense_desk": "c", "model": "a"},
    "peer_cascadeflow": {"drafter": "a", "verifier": "b", "threshold": 0.7},
    "peer_litellm": dict.fromkeys(("SIMPLE", "MEDIUM", "COMPLEX", "REASONING"), "a"),
    "peer_llmrouter": {},
}


@pytest.mark.parametrize("app", sorted(KNOWN))
@pytest.mark.parametrize("adapter", sorted(CHOSEN))
def test_an_edit_is_python_in_which_no_stage_keeps_its_model(adapter, app, monkeypatch):
    from peers_parts.figures import lines_changed

    for name in (*STANDS_IN, "sklearn.decomposition", "sklearn.feature_extraction.text", "sklearn.pipeline"):
        monkeypatch.setitem(sys.modules, name, MagicMock(spec=ModuleType(name), __path__=[]))
        for attribute in ("ModelSelector", "TruncatedSVD", "TfidfVectorizer", "make_pipeline", "make_union"):
            setattr(sys.modules[name], attribute, MagicMock())
    for attribute in ("KNNRouter", "SVMRouter", "MLPRouter", "KNNRouterTrainer", "SVMRouterTrainer", "MLPTrainer"):
        setattr(sys.modules["llmrouter.models"], attribute, MagicMock())
    module = __import__(adapter)
    made = module.edited(project(app), CHOSEN[adapter])
    ast.parse(made)
    assert project(app).llm not in made
    assert 1 <= lines_changed(source(app), made) <= 30


def test_an_edit_of_a_line_that_is_not_there_is_an_error():
    from project import replaced

    with pytest.raises(ValueError, match="does not have 'nothing'"):
        replaced("source", ("nothing", "more"))


def test_lines_that_are_new_or_different_count():
    from peers_parts.figures import lines_changed

    assert lines_changed("a\nb\nc\n", "a\nB\n\nc\nd\n") == 2
    assert lines_changed("a\nb\n", "b\n") == 0


def test_recorded_answers_are_replayed_at_their_dollars_and_other_steps_are_easy():
    from peers_parts.server import Replies, price

    questions = asked("linear")
    replies = Replies("linear", questions, 0)
    copied = 0
    for one in questions:
        reply, usage, found, _ = replies({"model": "gpt-4", "messages": [{"role": "user", "content": f"Solve: {one.text}"}]})
        assert (reply.text, found) == ("The answer is B.", one)
        assert price("linear", "gpt-4", usage) == pytest.approx((100 * 30 + 10 * 60) / 1e6)
        told = f"Fill in the answer sheet\n{one.text}\nSolution: {reply.text}"
        copied += replies({"model": "gpt-4", "messages": [{"role": "user", "content": told}]})[0].text == "B"
    assert 36 <= copied <= 40
    assert replies({"model": "gpt-4", "messages": [{"role": "user", "content": "What else?"}]})[2] is None


def test_the_wrong_desk_does_not_answer():
    from peers_parts.server import Replies

    replies = Replies("branching", asked("branching"), 0)
    ask = lambda text: replies({"model": "Yi-34B-Chat", "messages": [{"role": "user", "content": text}]})[0].text  # noqa: E731
    assert ask("You work at the science desk.\n\nQuestion number 2: B?") == "B"
    assert ask("You work at the commonsense desk.\n\nQuestion number 2: B?") == "Ask another desk."
    assert ask("Is this a question of science or of commonsense? Say one word.\n\nQuestion number 2: B?") == "science"


def test_each_name_has_a_meter_of_its_own():
    from peers_parts.figures import by_question
    from peers_parts.server import Meter

    meter = Meter()
    for name, question, usd in (("a", "q1", 1.0), ("a", "q1", 2.0), ("a", "q2", 4.0), ("b", "q1", 8.0)):
        meter.add(name, question, usd)
    assert meter.used("a") == {"usd": {"q1": 3.0, "q2": 4.0}, "total_usd": 7.0, "calls": 3}
    assert by_question(meter.used("a"), ["q2", "q1", "q3"]) == [4.0, 3.0, 0.0]
    assert meter.used("c")["total_usd"] == 0


def test_who_is_ahead_is_what_the_whole_interval_says():
    from peers_parts.figures import paired, served

    usd = [0.5] * 100
    better, worse = [True] * 80 + [False] * 20, [True] * 50 + [False] * 50
    assert served(better, usd)["accuracy"] == 0.8
    assert paired(better, usd, worse, usd)["ahead"] == "it"
    assert paired(worse, usd, better, usd)["ahead"] == "other"
    assert paired(better, usd, better[::-1], usd)["ahead"] == "neither"


@pytest.fixture
def bench(monkeypatch, tmp_path):
    """The benchmark of one application with questions of its own, a fake peer, and a server in this process."""
    import threading
    from http.server import ThreadingHTTPServer

    import bench_peers
    from peers_parts.server import Meter, PeersHandler, Replies

    parts = tmp_path / "parts"
    (parts / "apps").mkdir(parents=True)
    (parts / "apps" / "linear.py").write_text(LIGHT)
    (parts / "project.py").write_text((PARTS / "project.py").read_text())
    (parts / "peer_vinelm.py").write_text((PARTS / "peer_vinelm.py").read_text())
    (parts / "peer_fake.py").write_text(FAKE)
    (parts / "langchain_openai.py").write_text(CHAT_OPENAI)
    monkeypatch.setattr(bench_peers, "PARTS", parts)
    monkeypatch.setattr(bench_peers, "SOURCES", parts / "apps")
    monkeypatch.setattr(bench_peers, "python_of", lambda name: Path(sys.executable))
    monkeypatch.setitem(bench_peers.PEERS, "fake", bench_peers.Peer("a fake", "peer_fake", "fake"))
    questions = asked("linear", 120)
    monkeypatch.setattr(bench_peers, "questions", lambda app, data, seed: (questions[:80], questions[80:]))
    monkeypatch.setattr(PeersHandler, "replies", {"linear": Replies("linear", questions, 0)})
    monkeypatch.setattr(PeersHandler, "meter", Meter())
    server = ThreadingHTTPServer(("127.0.0.1", 0), PeersHandler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield bench_peers.Bench(tmp_path / "projects", server.server_address[1], None, 0, is_quiet=True)
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.long
def test_a_peer_chooses_with_the_dollars_and_is_judged_on_what_the_server_meters(bench):
    rows = bench.app("linear", ["fake"])["rows"]
    fake = rows["fake"]
    assert "failed" not in fake, fake
    assert fake["chosen"] != "llama-2-7b-chat"
    assert fake["accuracy"] > 0.9
    assert fake["lines_changed"] == 1
    assert 0 < fake["choosing_usd"] <= 6
    assert fake["usd"] > 100e-6


def test_a_peer_that_fails_says_its_last_line_and_ends_nothing(bench):
    import bench_peers

    (bench_peers.PARTS / "peer_fake.py").write_text("raise SystemExit('no such peer')")
    assert bench.app("linear", ["fake"])["rows"] == {"fake": {"failed": "no such peer"}}


@pytest.mark.long
def test_vinelm_goes_through_its_own_commands_and_serves_at_a_rivals_dollars(bench, monkeypatch):
    import bench_peers

    parts = bench_peers.PARTS
    monkeypatch.setitem(bench_peers.DOLLARS, "linear", 0.6)
    (parts / "apps" / "linear.py").write_text(source("linear"))
    (parts / "langchain_openai.py").write_text(CHAT_OPENAI + LANGCHAIN)
    rows = bench.app("linear", ["fake", "vinelm"])["rows"]
    assert "failed" not in rows["vinelm"], rows["vinelm"]
    assert rows["vinelm"]["accuracy"] > 0.9
    assert 0 < rows["vinelm"]["choosing_usd"] <= 0.6
    at = rows["fake"]["vinelm_at_its_dollars"]
    assert at["less_rival"]["ahead"] in ("it", "neither")


NAMED = {
    "today": "today's model",
    "single": "best single model",
    "agentopt": "agentopt",
    "cascadeflow": "cascadeflow",
    "litellm": "LiteLLM",
    "llmrouter": "LLMRouter",
}


def test_the_page_names_every_tool_that_is_ahead_of_vinelm_and_no_other():
    """The tables themselves are held by tests/docs/test_result_tables.py; here the sentence that says who is ahead."""
    root = SCRIPTS.parent
    found = json.loads((root / "results" / "peers.json").read_text(encoding="utf-8"))
    page = (root / "docs" / "measurements.md").read_text(encoding="utf-8")
    assert set(found["apps"]) == KNOWN
    for app, figures in found["apps"].items():
        ahead = {"it": set(), "other": set(), "neither": set()}
        assert set(figures["rows"]) == {*NAMED, "vinelm"}
        for peer, name in NAMED.items():
            difference = figures["rows"][peer]["vinelm_at_its_dollars"]["less_rival"]
            low, high = difference["accuracy_interval"]
            assert difference["ahead"] == ("it" if low > 0 else "other" if high < 0 else "neither")
            ahead[difference["ahead"]].add(name)
        sentence = re.search(rf"<!-- {app}: who is ahead -->(.*?)<!-- end -->", page, re.DOTALL)[1]
        behind, _, rest = sentence.partition("VineLM is ahead of")
        assert {one for one in NAMED.values() if one in behind} == ahead["other"], app
        assert {one for one in NAMED.values() if one in rest.partition(".")[0]} == ahead["it"], app


def test_pinned_packages_are_exact():
    for path in (PARTS / "requirements").glob("*.txt"):
        lines = [line.removeprefix("# alone: ") for line in path.read_text().splitlines()]
        for line in lines:
            assert "==" in line or line.startswith(("#", "-e .")), f"{path.name}: {line}"
