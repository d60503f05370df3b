"""The page of a store in a real headless browser: every figure drawn, no error, nothing asked from outside."""

import json
import re
import shutil
import subprocess

import pytest
from kit.stores import made_store

import vinelm

BROWSER = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")
PROBE = """
<script>
(async () => {
  const found = { figures: [], rows: [], tips: 0, files: {} };
  const shown = one => one.getBoundingClientRect().height > 0;
  found.fold = all(".card > *").filter(one => one.tagName !== "DETAILS").map(one => one.getBoundingClientRect().bottom);
  found.words = document.body.innerText.trim().split(/\\s+/).length;
  found.buttons = all(".card > .take button").map(one => one.textContent);
  found.reached = all(".card button, summary, .picture").every(one => one.tabIndex === 0);
  const clipboard = { writeText: async text => { found.copied = text; } };
  Object.defineProperty(navigator, "clipboard", { value: clipboard, configurable: true });
  all("[data-copy]").at(-1).click();
  await new Promise(done => setTimeout(done, 50));
  found.says = document.querySelector(".card [role=status]").textContent;
  Object.defineProperty(navigator, "clipboard", { value: undefined });
  document.execCommand = () => false;
  all("[data-copy]").at(-1).click();
  await new Promise(done => setTimeout(done, 50));
  found.refused = [document.querySelector(".card [role=status]").textContent, shown(document.getElementById("card-command"))];
  found.verdict = JSON.parse(document.getElementById("card-json").textContent);
  all("details").forEach(one => { one.open = true; });
  found.examples = {};
  for (const choice of all(".examples input")) {
    choice.click();
    const left = all(".examples article").filter(shown);
    found.examples[choice.value] = left.map(one => all(".right, .wrong", one).map(who => who.className));
  }
  const kind = document.documentElement.clientWidth > 640 ? "wide" : "narrow";
  for (const figure of all("figure")) {
    const svg = visible(figure.querySelector(".picture")), box = svg.getBoundingClientRect();
    const marks = all("path", svg).filter(path => path.getBBox().width > 0);
    const hits = all(".hit", svg).map(hit => hit.getBoundingClientRect());
    found.figures.push({
      kind: svg.classList.contains(kind), width: box.width, height: box.height, marks: marks.length,
      texts: all("text", svg).length, hits: hits.length,
      inside: hits.every(hit => hit.left > box.left - 9 && hit.right < box.right + 9
        && hit.top > box.top - 9 && hit.bottom < box.bottom + 9),
      unpainted: svg.outerHTML.includes("#a1b0"),
    });
    figure.querySelector(".picture").dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
    found.tips += figure.querySelectorAll(".tip").length;
  }
  const table = document.querySelector('[aria-label="First answers by model"] table'), button = all("th button", table)[2];
  for (let turn = 0; turn < 2; turn++) {
    button.click();
    found.rows.push(all("tbody tr", table).map(row => row.cells[2].textContent));
  }
  found.sorted = button.closest("th").getAttribute("aria-sort");
  found.csv = csv(table).split("\\r\\n")[0];
  const drawn = picture(document.querySelector("figure"));
  found.files = { svg: drawn.text.length, var: drawn.text.includes("var("), png: (await bitmap(drawn)).size };
  found.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  found.ids = all("[id]").length - new Set(all("[id]").map(one => one.id)).size;
  found.alive = window.hostile === undefined;
  const out = document.createElement("script");
  out.type = "application/json"; out.id = "probe"; out.textContent = JSON.stringify(found).replace(/</g, "\\\\u003c");
  document.body.append(out);
})();
</script>
"""
HOSTILE = "</script><script>window.hostile = 1</script>"
MODELS = {"small": 0.45, f'"><img src=x onerror="window.hostile=1">{HOSTILE}$x$': 0.6, "=large": 0.8}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page of a store with hostile names, as text."""
    folder = tmp_path_factory.mktemp("page")
    cost = dict(zip(MODELS, (0.001, 0.002, 0.01), strict=True))
    path = made_store(folder / "s.db", MODELS, cost, requests=160, is_simulated=True)
    return vinelm.report(path, vinelm.estimate(path, check=False), folder).read_text(encoding="utf-8")


def probed(page, folder, width, *options):
    """What the page looks like from inside, and what the browser said."""
    target = folder / "p.html"
    target.write_text(page.replace("</body>", PROBE + "</body>"), encoding="utf-8")
    # Every host name fails to resolve: a request to anywhere would be an error on the console.
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}", "--dump-dom",
        "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--virtual-time-budget=8000",
        f"--window-size={width},900", *options, target.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    found = re.search(r'<script type="application/json" id="probe">(.*?)</script>', done.stdout, re.S)
    assert found is not None, done.stderr
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(found[1]), console


@pytest.fixture(scope="module")
def wide(page, tmp_path_factory):
    """What the page is like from inside on a laptop, and what the browser said."""
    return probed(page, tmp_path_factory.mktemp("wide"), 1280)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), pytest.param(500, "dark", marks=pytest.mark.long)])
def test_every_figure_is_drawn_and_nothing_fails(page, tmp_path, width, scheme):
    options = ("--blink-settings=preferredColorScheme=0",) if scheme == "dark" else ()
    found, console = probed(page, tmp_path, width, *options)
    assert console == []
    assert found["alive"]
    assert len(found["figures"]) >= 6
    for figure in found["figures"]:
        assert figure["kind"], "the drawing for this width"
        assert figure["inside"]
        assert not figure["unpainted"]
        assert figure["width"] > 300
        assert figure["height"] > 60
        assert min(figure["marks"], figure["texts"]) > 3
        assert figure["hits"] > 0
    assert found["tips"] == len(found["figures"])
    assert found["ids"] == 0
    assert found["overflow"] <= 0


def test_the_card_is_seen_without_scrolling_and_the_rest_is_folded(wide):
    found, _ = wide
    assert max(found["fold"]) < 800
    assert 100 < found["words"] <= 800
    assert found["buttons"] == ["Copy the plan as code", "Copy the command", "JSON"]
    assert found["reached"], "by the keyboard"
    assert found["verdict"]["advice"] == "switch"


def test_what_is_copied_is_the_command_and_where_that_is_forbidden_it_is_shown(wide):
    found, _ = wide
    assert re.fullmatch(r"vinelm plan \S+ --as-code", found["copied"])
    assert found["says"] == "Copied."
    assert found["refused"] == ["Copy it from here.", True]


def test_examples_are_filtered_by_who_is_right(wide):
    found = wide[0]["examples"]
    assert len(found["all"]) == 10
    wanted = {
        "after": ["wrong", "right"],
        "before": ["right", "wrong"],
        "both": ["right", "right"],
        "neither": ["wrong", "wrong"],
    }
    for who, each in wanted.items():
        assert found[who] == [one for one in found["all"] if one == each]
    assert found["after"]
    assert found["before"]


def test_tables_sort_and_files_can_be_taken_away(wide):
    found, console = wide
    assert console == []
    first, second = ([float(re.sub(r"[^\d.]", "", text)) for text in rows if re.search(r"\d", text)] for rows in found["rows"])
    assert len(first) > 2
    assert (first, second) == (sorted(first), sorted(second, reverse=True))
    assert found["sorted"] == "descending"
    assert found["csv"].startswith('\ufeff"')
    assert min(found["files"]["svg"], found["files"]["png"]) > 1_000
    assert not found["files"]["var"]


def test_a_broken_page_would_be_noticed(page, tmp_path):
    asks = page.replace("<h1>", '<img src="https://example.invalid/x.png"><h1>', 1)
    assert probed(asks, tmp_path, 1280)[1]
    throws = page.replace("</body>", "<script>undefined_name();</script></body>")
    assert probed(throws, tmp_path, 1280)[1]
