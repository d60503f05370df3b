"""The slider in a real headless browser, and the page without a script."""

import json
import re
import shutil
import subprocess

import pytest
from kit.stores import made_store

import vinelm

BROWSER = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")
EVIL = "<script>window.hostile = 1</script>"
MODELS = {"small": 0.45, EVIL: 0.6, "large": 0.85}
PROBE = """
<script>
{
  const above = all(".card > *").filter(one => one.tagName !== "DETAILS");
  const fold = Math.max(...above.map(one => one.getBoundingClientRect().bottom));
  all("details").forEach(one => { one.open = true; });
  const slider = document.getElementById("budget"), seen = [];
  const look = () => {
    const text = selector => document.querySelector(selector).textContent;
    const shown = name => visible(document.querySelector(`[data-picture="${name}"]`)).outerHTML;
    const kind = document.documentElement.clientWidth > 640 ? "wide" : "narrow";
    seen.push({
      budget: text('[data-text="budget"]'), says: text('[data-text="plan"]'), spoken: slider.getAttribute("aria-valuetext"),
      figures: all(".budget dd").map(one => one.textContent), graph: shown("graph"), tree: shown("tree"),
      dollars: shown("stage-dollars"), seconds: shown("stage-seconds"),
      kinds: all("[data-picture]").every(one => visible(one).classList.contains(kind)),
      overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    });
  };
  const first = slider.value;
  for (let at = Number(slider.min); at <= Number(slider.max); at++) {
    slider.value = at; slider.dispatchEvent(new Event("input")); look();
  }
  const inside = all("[data-picture] svg").filter(svg => svg.getBoundingClientRect().width > 0).every(svg => {
    const box = svg.getBoundingClientRect();
    return all("path, text, rect", svg).every(part => {
      const own = part.getBoundingClientRect();
      return own.left > box.left - 2 && own.right < box.right + 2 && own.top > box.top - 2 && own.bottom < box.bottom + 2;
    });
  });
  const out = document.createElement("script");
  out.type = "application/json"; out.id = "probe";
  out.textContent = JSON.stringify({
    seen, first, inside, fold, shown: !slider.hidden, hostile: window.hostile === 1,
    width: document.documentElement.clientWidth,
    label: slider.labels.length, asked: performance.getEntriesByType("resource").map(one => one.name),
  }).replace(/</g, "\\\\u003c");
  document.body.append(out);
}
</script>
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page of a store with a model whose name is a script, as text."""
    folder = tmp_path_factory.mktemp("budgets")
    cost = dict(zip(MODELS, (0.001, 0.002, 0.01), strict=True))
    path = made_store(folder / "s.db", MODELS, cost, requests=160, is_simulated=True)
    return vinelm.report(path, vinelm.estimate(path, check=False), folder).read_text(encoding="utf-8")


def dumped(page, folder, *options):
    """The page after its scripts have run, and what the browser said."""
    target = folder / "p.html"
    target.write_text(page, encoding="utf-8")
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}", "--dump-dom",
        "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--virtual-time-budget=8000", *options,
        target.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def probed(page, folder, width):
    dom, console = dumped(page.replace("</body>", PROBE + "</body>"), folder, f"--window-size={width},900")
    found = re.search(r'<script type="application/json" id="probe">(.*?)</script>', dom, re.S)
    assert found is not None, console
    assert console == []
    return json.loads(found[1])


@needs_browser
@pytest.mark.parametrize("width", [pytest.param(1280, marks=pytest.mark.long), 390])
def test_the_slider_moves_the_plan_and_nothing_scrolls_sideways(page, tmp_path, width):
    found = probed(page, tmp_path, width)
    seen = found["seen"]
    assert found["shown"]
    assert found["label"] == 1
    own = [at for at, one in enumerate(seen) if "that of the verdict" in one["budget"]]
    assert [int(found["first"])] == own, "the plan of the verdict is shown first"
    assert found["width"] <= max(width, 500)
    for name in ("budget", "says", "graph", "tree", "dollars", "seconds"):
        assert len({one[name] for one in seen}) > 1, name
    assert len({one["budget"] for one in seen}) == len(seen)
    assert all(one["budget"] == one["spoken"] for one in seen)
    others = [one for at, one in enumerate(seen) if at not in own]  # the verdict's is no mixture
    right, usd = ([float(re.search(r"[\d.]+", one["figures"][i])[0]) for one in others] for i in (0, 1))
    assert (right, usd) == (sorted(right), sorted(usd)), "more dollars, more right answers"
    assert right[0] < right[-1]
    assert all(one["kinds"] for one in seen)
    assert max(one["overflow"] for one in seen) <= 0
    assert found["inside"]
    assert found["asked"] == [], "nothing is asked from anywhere"
    assert not found["hostile"], "a model's name is no script"


@needs_browser
def test_nothing_scrolls_sideways_in_a_frame_of_a_phone(page, tmp_path):
    """A window of a headless browser may be wider than what was asked for; a frame is as wide as it says."""
    (tmp_path / "inner.html").write_text(page.replace("</body>", PROBE + "</body>"), encoding="utf-8")
    frame = (
        '<iframe id="f" src="inner.html" width="390" height="800" style="border:0"></iframe><pre id="said"></pre>'
        "<script>onload = () => { const inner = document.getElementById('f').contentDocument;"
        "document.getElementById('said').textContent = inner.getElementById('probe').textContent; };</script>"
    )
    dom, _ = dumped(frame, tmp_path, "--allow-file-access-from-files", "--window-size=1280,900")
    found = json.loads(re.search(r'<pre id="said">(.*?)</pre>', dom, re.S)[1].replace("&lt;", "<").replace("&amp;", "&"))
    assert 370 <= found["width"] <= 390
    assert found["fold"] < 844, "the card is seen without scrolling"
    assert max(one["overflow"] for one in found["seen"]) <= 0
    assert found["inside"]
    assert all(one["kinds"] for one in found["seen"]), "the drawings for a phone"


@needs_browser
def test_without_a_script_the_first_plan_is_there(page, tmp_path):
    dom, _ = dumped(page.replace("script-src 'unsafe-inline'", "script-src 'none'"), tmp_path, "--window-size=1280,900")
    slider = re.search(r'<input type="range"[^>]*>', dom)[0]
    assert " hidden" in slider, "nothing that does not work is shown"
    assert re.search(r"<noscript>.*needs JavaScript.*</noscript>", dom, re.S)
    data = json.loads(re.search(r'id="budget-stops">(.*?)</script>', page, re.S)[1])
    (middle,) = (stop for stop in data["stops"] if "that of the verdict" in stop["texts"]["budget"])
    assert middle["texts"]["budget"] in dom
    for name, number in middle["pictures"].items():
        place = dom[dom.index(f'id="chart-{name}"') :]
        assert data["pictures"][number].count("<path") == place[: place.index('class="take"')].count("<path")


def test_the_page_is_small_and_no_name_is_markup(page):
    assert len(page.encode()) <= 1_000_000
    assert EVIL not in page
    assert "&lt;script&gt;window.hostile" in page
    data = re.search(r'id="budget-stops">(.*?)</script>', page, re.S)[1]
    assert "<" not in data
    assert json.loads(data)["pictures"]
    assert page.count("<script") == 4, "two scripts of our own, the verdict and the data of the budgets"
