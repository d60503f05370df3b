"""Write the verdict of `vinelm try --json` as a comment on a pull request, in place of an earlier one of its own.

A step of ``action.yml``; needs the standard library alone. Reads GitHub's variables of a run (``GITHUB_EVENT_PATH``,
``GITHUB_API_URL``, ``GITHUB_TOKEN``, ``GITHUB_STEP_SUMMARY``, ``GITHUB_OUTPUT``). Only figures, names of models and the
verdict's own sentence are written: no prompt, no answer, no message of an error, no key.

Example: python scripts/pull_request_comment.py try.json --app app.py:graph
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

API_TIMEOUT_S = 30.0
MOST_PAGES = 50
LONGEST = 60_000
"""Characters of a comment; GitHub takes 65,536."""
_MARKUP = re.compile(r"([\\`*_{}\[\]()<>#|~@!$])")
Ask = Callable[[str, str, Mapping[str, Any] | None], Any]
"""Sends a request: method, address, and a body as JSON types or None; returns the answer's JSON."""


# -- the card -------------------------------------------------------------------------------------------------------


def marker(app: str) -> str:
    """The first line of our comment, which nobody sees; one comment for each application."""
    return f"<!-- vinelm try {re.sub(r'[^A-Za-z0-9_.:/]', '', app)} -->"


def verdict_of(result: Mapping[str, Any]) -> str:
    """The verdict in one word; ``error`` where the command failed."""
    word = mapping(result, "verdict").get("advice")
    if isinstance(word, str) and re.fullmatch(r"[a-z][a-z -]{0,30}", word):
        return word
    return "error" if "error" in result else "unknown"


def card(result: Mapping[str, Any], app: str, *, commit: str = "", run_url: str = "") -> str:
    """Return the comment: verdict, sentence, table, what it rests on."""
    verdict = verdict_of(result)
    lines = [marker(app), f"### VineLM on `{app.replace('`', '')}`: {verdict}", ""]
    if verdict == "error":
        lines += [*error_lines(mapping(result, "error")), ""]
    if isinstance(sentence := mapping(result, "verdict").get("sentence"), str):
        lines += [escaped(sentence), ""]
    rows = list(table_rows(result))
    if rows:
        lines += ["| | accuracy (95 % each end) | $ per 1,000 | dollars |", "| --- | --- | ---: | ---: |"]
        lines += [f"| {' | '.join(row)} |" for row in rows]
        lines.append("")
    lines += [line for line in rests_on(result, commit, run_url) if line]
    return "\n".join(lines)[:LONGEST].rstrip() + "\n"


def error_lines(error: Mapping[str, Any]) -> Iterator[str]:
    """The kind of a failure and what helps; its message may quote the owner's data, so it stays in the log."""
    kind, hint = error.get("kind"), error.get("hint")
    yield f"`vinelm try` failed ({escaped(kind) if isinstance(kind, str) else 'no result'}): the log of this run says why."
    if isinstance(hint, str):
        yield f"What may help: {escaped(hint)}."


def table_rows(result: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """What runs today, or else the strongest single model, and each different plan that rows show, the cheapest first."""
    verdict = mapping(result, "verdict")
    accuracy, cost_usd = number(verdict.get("accuracy")), number(verdict.get("cost_usd"))
    if accuracy is None or cost_usd is None:
        return
    models = " and ".join(dict.fromkeys(escaped(str(name)) for name in mapping(verdict, "models").values()))
    name = "today" if verdict.get("is_today") is not False else "the strongest single model"
    yield f"{name}{f' ({models})' if models else ''}", f"{100 * accuracy:.1f} %", f"{1000 * cost_usd:.3g}", ""
    plans = [plan for plan in verdict.get("plans") or () if isinstance(plan, Mapping)]
    plans = [plan for plan in plans if plan.get("is_identified") is not False and plan.get("is_same") is not True]
    best = sorted(plans, key=lambda plan: -(number(plan.get("saved_usd")) or 0.0))[:3]
    for plan in best:
        gain, low, high, saved = (number(plan.get(name)) for name in ("gain", "best_low", "best_high", "saved_usd"))
        if gain is None or saved is None:
            continue
        ends = "" if low is None or high is None else f" ({100 * low:+.1f} to {100 * high:+.1f})"
        words = plan.get("words")
        used = words if isinstance(words, str) and words else " and ".join(map(str, plan.get("models") or ()))
        change = f"{100 * -saved / cost_usd:+.0f} %" if cost_usd else "-"
        yield (
            escaped(used) or "a plan",
            f"{100 * gain:+.1f} points{ends}",
            f"{1000 * (cost_usd - saved):.3g}",
            change,
        )


def rests_on(result: Mapping[str, Any], commit: str, run_url: str) -> Iterator[str]:
    """On how many requests and dollars it rests, of which commit and run."""
    requests, spent_usd = number(result.get("requests")), number(result.get("spent_usd"))
    parts = [] if requests is None else [f"{requests:,.0f} requests"]
    parts += [] if spent_usd is None else [f"${spent_usd:.3g} spent"]
    parts += ["simulated models"] if result.get("is_simulated") is True else []
    if re.fullmatch(r"[0-9a-f]{7,64}", commit):
        parts.append(f"commit {commit[:9]}")
    if re.fullmatch(r"https://[\w.:-]+/[\w./-]+", run_url):
        parts.append(f"[the run]({run_url})")
    yield f"<sub>{', '.join(parts)}</sub>" if parts else ""


def mapping(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The object under a key; an empty one where there is none, or something else."""
    found = value.get(key)
    return found if isinstance(found, Mapping) else {}


def number(value: Any) -> float | None:
    """A finite number; None for all else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else None


def escaped(text: str) -> str:
    """Text on one line without Markdown, HTML or mentions; at most 600 characters."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split())[:600])


# -- GitHub ---------------------------------------------------------------------------------------------------------


def api(token: str) -> Ask:
    """Return how to ask GitHub with a token, which goes to the host of ``GITHUB_API_URL`` alone."""

    def ask(method: str, url: str, body: Mapping[str, Any] | None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        request = urllib.request.Request(url, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=API_TIMEOUT_S) as answer:
            return json.loads(answer.read() or b"null")

    return ask


def pull_request(event: Mapping[str, Any]) -> tuple[str, int, str] | None:
    """The repository, number and commit of an event's pull request; None for other events."""
    pull = mapping(event, "pull_request")
    number_, name = pull.get("number", event.get("number")), mapping(event, "repository").get("full_name")
    if not pull or not isinstance(number_, int) or not re.fullmatch(r"[\w.-]+/[\w.-]+", str(name)):
        return None
    return str(name), number_, str(mapping(pull, "head").get("sha", ""))


def publish(ask: Ask, base: str, repository: str, number_: int, text: str, *, app: str, author: str) -> str:
    """Write the comment, or replace the earlier one of this application and author; returns which."""
    issue = f"{base}/repos/{repository}/issues"
    for page in range(1, MOST_PAGES + 1):
        comments = ask("GET", f"{issue}/{number_}/comments?per_page=100&page={page}", None)
        for one in comments:
            is_ours = mapping(one, "user").get("login") == author
            if is_ours and str(one.get("body", "")).startswith(marker(app)):
                ask("PATCH", f"{issue}/comments/{int(one['id'])}", {"body": text})
                return "updated"
        if len(comments) < 100:
            break
    ask("POST", f"{issue}/{number_}/comments", {"body": text})
    return "written"


def read_result(path: Path) -> dict[str, Any]:
    """What the command printed; an error without words where it printed no object, as when it was killed."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = None
    return found if isinstance(found, dict) else {"error": {}}


def main(arguments: list[str] | None = None, *, ask: Ask | None = None) -> int:
    """Write the card into the job's summary, and onto the pull request if there is one. Returns 0."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("result", type=Path, help="what `vinelm try --json` printed")
    parser.add_argument("--app", required=True, help="the application: it has a comment of its own")
    parser.add_argument("--author", default="github-actions[bot]", help="the login that the token writes as")
    parser.add_argument("--no-comment", action="store_true", help="the job's summary alone")
    given = parser.parse_args(arguments)
    env = os.environ
    result = read_result(given.result)
    event_path = env.get("GITHUB_EVENT_PATH")
    event = json.loads(Path(event_path).read_text(encoding="utf-8")) if event_path else {}
    found = pull_request(event)
    server, repository, run = (env.get(f"GITHUB_{name}", "") for name in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
    run_url = f"{server}/{repository}/actions/runs/{run}"
    text = card(result, given.app, commit=found[2] if found else env.get("GITHUB_SHA", ""), run_url=run_url)
    for name, line in (("GITHUB_STEP_SUMMARY", text), ("GITHUB_OUTPUT", f"verdict={verdict_of(result)}\n")):
        if path := env.get(name):
            with open(path, "a", encoding="utf-8") as file:
                file.write(line)
    if found is None or given.no_comment:
        print("no comment: " + ("it was not asked for" if given.no_comment else "this run is of no pull request"))
        return 0
    base = env.get("GITHUB_API_URL", "https://api.github.com")
    try:
        said = publish(
            ask or api(env.get("GITHUB_TOKEN", "")), base, found[0], found[1], text, app=given.app, author=given.author
        )
    except urllib.error.HTTPError as error:  # a pull request from a fork has a token that reads only
        error.close()
        print(f"::warning::no comment: GitHub says {error.code}; the card is in the job's summary")
        return 0
    except urllib.error.URLError as error:
        why = type(error.reason).__name__
        print(f"::warning::no comment: GitHub cannot be reached ({why}); the card is in the job's summary")
        return 0
    print(f"comment {said}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
