"""The page of questions in a real headless browser, over 200 hostile texts: each is shown as it is, and none becomes markup."""

import html
import json
import random
import re
import shutil
import subprocess

import pytest

from vinelm.replay.labelling.desk import differing_parts
from vinelm.replay.labelling.page import file_of

BROWSER = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
PIECES = (
    "</script>",
    "<script>window.hostile=1</script>",
    "<img src=x onerror='window.hostile=1'>",
    "<!--",
    "-->",
    "]]>",
    "&lt;",
    "&#0;",
    "javascript:window.hostile=1",
    "<svg onload=window.hostile=1>",
    "\u2028",
    "\u202e",
    "\x00",
    "\ufeff",
    "${7*7}",
    "`",
    "\\",
    "'",
    '"',
    "\n",
    "\t",
    "</pre></section>",
    "<iframe srcdoc='<script>parent.hostile=1</script>'>",
    "é",
    "🦊",
    "<base href=//evil.example>",
    " ",
)
PROBE = """
<script nonce="NONCE">
(async () => {
  const found = { shown: [], hostile: [] };
  for (let turn = 0; turn < COUNT; turn++) {
    await new Promise(done => setTimeout(done, 0));
    found.shown.push([at("left").textContent, at("right").textContent, at("prompt").querySelectorAll("pre")[1].textContent]);
    window.prompt = () => turn % 12 === 5 ? "2 0" : " 0.7 1";
    if (turn % 6 === 5) document.dispatchEvent(new KeyboardEvent("keydown", { key: "g" }));
    if (turn % 12 === 5) found.refused = at("alert").textContent;
    if (turn % 12 !== 11) document.dispatchEvent(new KeyboardEvent("keydown", { key: String(1 + turn % 5) }));
    await new Promise(done => setTimeout(done, 0));
  }
  found.alive = window.hostile === undefined;
  found.foreign = document.querySelectorAll("img, svg, iframe, base, main script, #prompt *:not(p):not(pre)").length;
  found.scripts = document.querySelectorAll("script").length;
  found.standing = at("standing").textContent;
  found.choices = sent.given.map(one => one.choice);
  const out = document.createElement("textarea");
  out.id = "probe"; out.textContent = JSON.stringify(found);
  document.body.append(out);
})();
</script>
"""


@pytest.mark.long
@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")
def test_two_hundred_hostile_texts_are_shown_as_they_are(tmp_path):
    rng = random.Random(0)
    texts = ["".join(rng.choices(PIECES, k=rng.randrange(1, 12))) for _ in range(200)]
    questions = []
    for number, text in enumerate(texts):
        left, right = differing_parts(text, f"{text}!")
        questions.append(
            {"question": number, "step": text, "prompt": [["system", text], ["user", text]], "left": left, "right": right}
        )
    page = file_of(questions)
    nonce = re.search(r'nonce="([^"]+)"', page)[1]
    probe = PROBE.replace("NONCE", nonce).replace("COUNT", str(len(texts)))
    path = tmp_path / "page.html"
    path.write_text(page.replace("</body>", f"{probe}</body>"), encoding="utf-8")
    line = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--virtual-time-budget=30000",
    ]
    line += [f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", path.as_uri()]
    dom = subprocess.run(line, capture_output=True, text=True, check=True, timeout=120).stdout
    found = json.loads(html.unescape(re.search(r'<textarea id="probe">(.*?)</textarea>', dom, re.DOTALL)[1]))
    assert found["alive"]
    assert (found["foreign"], found["scripts"]) == (0, 3)  # the page's two, and this test's
    assert found["shown"] == [[text, f"{text}!", text] for text in texts]
    keys = ("left", "right", "both", "neither", "skip")
    assert found["choices"] == ["0.7/1" if number % 12 == 11 else keys[number % 5] for number in range(200)]
    assert found["refused"] == "Not kept: give two scores from 0 to 1, such as 0.7 0.4"
    assert found["standing"] == "200 of 200 answered"
