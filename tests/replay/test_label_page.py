"""The page that asks which answer is better: what it takes, whom it answers, and that no text becomes markup."""

import http.client
import json
import re
from contextlib import contextmanager
from threading import Thread

import pytest

from vinelm.errors import ConfigError, DatasetError
from vinelm.replay.labelling.desk import CHOICES, differing_parts
from vinelm.replay.labelling.page import FORMAT, MOST_BYTES, LabelPage, file_of, read_labels

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]>",
    "\u2028\u2029\x00",
    "\ud800",
    "${alert(1)}",
    '"><img src=x onerror=alert(1)>',
    "&lt;b&gt;",
    "@DATA@ @NONCE@",
    "\u202egnp.exe",
)


class Desk:
    """Questions in memory; the first one that a person has not answered is the next."""

    def __init__(self, questions):
        self.questions = {one["question"]: one for one in questions}
        self.labels = []

    def next_question(self, who):
        asked = {question for question, _, person in self.labels if person == who}
        return next((one for name, one in self.questions.items() if name not in asked), None)

    def next_questions(self, who, count):
        return list(self.questions.values())[:count]

    def knows(self, question):
        return question in self.questions

    def put_label(self, question, choice, who):
        self.labels.append((question, choice, who))

    def undo(self, who):
        mine = [one for one in self.labels if one[2] == who]
        if not mine:
            return None
        self.labels.remove(mine[-1])
        return self.questions[mine[-1][0]]

    def standing(self):
        return f"{len(self.labels)} labels"


def questions(*texts):
    sides = [differing_parts(text, f"{text} indeed") for text in texts]
    return [
        {"question": n, "step": "grade", "prompt": [("system", text), ("user", text)], "left": left, "right": right}
        for n, (text, (left, right)) in enumerate(zip(texts, sides, strict=True))
    ]


@contextmanager
def served(desk):
    with LabelPage(desk, who="ann") as page:
        thread = Thread(target=page.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield page
        finally:
            page.shutdown()
            thread.join()


def asked(page, method, path, body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", page.server_port, timeout=10)
    sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, body=sent, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def embedded(page):
    """The data of a page, as a browser reads it: the element ends at the first end tag."""
    return json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script', page, re.DOTALL)[1])


def test_labels_are_put_undone_and_told():
    desk = Desk(questions("a", "b"))
    with served(desk) as page:
        at = f"/{page.secret}/"
        assert asked(page, "GET", at)[0] == 200
        first = json.loads(asked(page, "POST", f"{at}next", {"who": "ann"})[1])
        assert first["question"]["question"] == 0
        second = json.loads(asked(page, "POST", f"{at}label", {"who": "ann", "question": 0, "choice": "left"})[1])
        assert (second["question"]["question"], second["standing"]) == (1, "1 labels")
        other = json.loads(asked(page, "POST", f"{at}next", {"who": "bob"})[1])
        assert other["question"]["question"] == 0
        again = json.loads(asked(page, "POST", f"{at}undo", {"who": "ann"})[1])
        assert (again["question"]["question"], desk.labels) == (0, [])
        for name in (0, 1):
            last = json.loads(asked(page, "POST", f"{at}label", {"who": "ann", "question": name, "choice": "0.7/0.4"})[1])
        assert last["question"] is None


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("label", {"who": "ann", "question": 9, "choice": "left"}),
        ("label", {"who": "ann", "question": 0, "choice": "better"}),
        ("label", {"who": "ann", "question": 0, "choice": "0.7/1.1"}),
        ("label", {"who": "ann"}),
        ("label", ["ann"]),
        ("next", {}),
        ("next", b"{"),
        ("next", b'{"who": "' + b"a" * MOST_BYTES + b'"}'),
        ("delete", {"who": "ann"}),
        ("../next", {"who": "ann"}),
    ],
)
def test_what_is_no_answer_is_refused_and_keeps_nothing(path, body):
    desk = Desk(questions("a"))
    with served(desk) as page:
        status, text = asked(page, "POST", f"/{page.secret}/{path}", body)
    assert (status, desk.labels) == (400, [])
    assert "Traceback" not in text


def test_only_this_machine_with_the_secret_is_answered():
    with served(Desk(questions("private words"))) as page:
        at, port = f"/{page.secret}/", page.server_port
        for path, headers in (
            ("/", {}),
            ("foo", {}),
            ("/wrong/", {}),
            (at[:-2], {}),
            (at, {"Host": f"evil.example:{port}"}),
            (at, {"Host": "127.0.0.1"}),
            (at, {"Origin": "http://evil.example"}),
            (at, {"Origin": "null"}),
        ):
            for method, what in (("GET", path), ("POST", f"{path}next")):
                status, text = asked(page, method, what, {"who": "ann"} if method == "POST" else None, **headers)
                assert (status, text) == (404, "no such page"), (method, what, headers)
        assert asked(page, "GET", at, Host=f"localhost:{port}")[0] == 200


def test_a_port_that_is_taken_is_one_line():
    with served(Desk([])) as page, pytest.raises(ConfigError, match=f"port {page.server_port} cannot be used here"):
        LabelPage(Desk([]), port=page.server_port)


def test_no_text_becomes_markup():
    page = file_of(questions(*HOSTILE))
    read = embedded(page)
    assert ["".join(text for text, _ in one["left"]) for one in read["questions"]] == list(HOSTILE)
    assert page.count("<script") == page.count("</script") == 2
    assert "innerHTML" not in page
    assert "http://" not in page.replace("http://127.0.0.1", "")
    assert read["choices"] == CHOICES


def test_a_file_that_came_back_is_read_whole_or_not_at_all(tmp_path):
    desk, path = Desk(questions("a", "b")), tmp_path / "labels.json"
    answers = {"format": FORMAT, "who": "bob", "labels": [{"question": 0, "choice": "left"}, {"question": 1, "choice": "skip"}]}
    path.write_text(json.dumps(answers), encoding="utf-8")
    assert read_labels(path, desk) == ("bob", 2)
    assert desk.labels == [(0, "left", "bob"), (1, "skip", "bob")]
    desk.labels.clear()
    for broken in (
        "{",
        "[]",
        json.dumps(answers | {"format": "x"}),
        json.dumps(answers | {"labels": [{"question": 0, "choice": "x"}]}),
        json.dumps(answers | {"labels": [{"question": 0, "choice": "left"}, {"question": 7, "choice": "left"}]}),
    ):
        path.write_text(broken, encoding="utf-8")
        with pytest.raises(DatasetError, match=re.escape(str(path))):
            read_labels(path, desk)
    assert desk.labels == []


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("", ""),
        ("Paris", "Paris"),
        ("It is Paris.", "It is Rome."),
        ("a\nb  c", "a b c"),
        ("x" * 9_999, ""),
        ("w " * 5_000, "v"),
    ],
)
def test_marked_parts_are_the_whole_text(left, right):
    parts = differing_parts(left, right)
    assert tuple("".join(text for text, _ in side) for side in parts) == (left, right)
    if left == right:
        assert not any(differs for side in parts for _, differs in side)


def test_only_what_differs_is_marked():
    left, right = differing_parts("It is Paris.", "It is Rome.")
    assert [text for text, differs in left if differs] == ["Paris"]
    assert [text for text, differs in right if differs] == ["Rome"]
