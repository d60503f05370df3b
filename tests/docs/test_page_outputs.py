"""Every block of every page is run, or says why not; and every `vinelm` command that a page shows exists with its options."""

import re
import shlex
import shutil
from pathlib import Path

import click
import page_outputs as script
import pytest
from kit.servers.postgres_server import connected

from vinelm.cli.main import cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
RUN_HERE = {"your-own-app.md": "test_your_own_app.py runs it"}
"""Pages that a test of their own runs."""
READ_HERE = re.compile(r"^## Formats\n.*?(?=^## )", re.DOTALL | re.MULTILINE)
"""The part of docs/profiling.md whose examples test_datasets.py reads."""
FLEET = "fleet.md"
SHOWN = ("", "text", "console", "shell", "bash", "sh", "{.text}")
COMMAND = re.compile(r"^(?:\$ )?(?:\S+=\S+ |env .*? )?(vinelm(?: (?:.*\\\n)*.*)?)$", re.MULTILINE)


RUN = [path for path in script.pages() if path.name not in RUN_HERE]


def named(path):
    return path.name


def test_every_block_of_commands_or_output_is_run_or_says_why_not():
    silent = []
    for page in PAGES:
        text = "" if page.name in RUN_HERE else READ_HERE.sub("", page.read_text(encoding="utf-8"))
        for block in script.blocks(text):
            if block.language in SHOWN and not block.verb and not is_made_of_results(text, block.start):
                silent.append(f"{page.name}:{block.line}: say `run`, or `not run: REASON`")
    assert not silent, "\n".join(silent)


def is_made_of_results(text, start):
    return text.rfind("<!-- result:", 0, start) > text.rfind("<!-- end of result -->", 0, start)


def shown_commands():
    for page in [ROOT / "README.md", *PAGES]:
        for block in script.blocks(page.read_text(encoding="utf-8")):
            for found in COMMAND.finditer(block.code) if block.language in SHOWN else ():
                line = re.sub(r"\s+#.*| [|>&].*|\\\n\s*", " ", found[1]).strip()
                yield f"{page.name}:{block.line}: {line}", line


def test_every_command_exists_with_its_options():
    wrong = []
    for place, line in shown_commands():
        try:
            parse(line)
        except (AssertionError, click.UsageError) as error:
            wrong.append(f"{place}: {error}")
    assert not wrong, "\n".join(wrong)


def parse(line):
    """Parse a command line as `vinelm` does, without running it."""
    command, ctx = cli, click.Context(cli, info_name="vinelm")
    words = shlex.split(line)[1:]
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, *words = words
        command = command.get_command(ctx, name)
        assert command is not None, f"{name} is no command"
        ctx = click.Context(command, info_name=name, parent=ctx, **command.context_settings)
    command.make_parser(ctx).parse_args(args=words)  # raises for an option that there is not


@pytest.fixture
def fleet_servers(request, monkeypatch):
    """What the page about fleets needs: a PostgreSQL with a user and a database, where programs look for it."""
    lacking = [name for name in ("redis-server", "curl") if not shutil.which(name)]
    if lacking:
        pytest.skip(f"no {', '.join(lacking)}: install them (Debian: apt install redis-server curl)")
    server = request.getfixturevalue("postgres_server")
    with connected(server.url) as connection:
        connection.execute("CREATE ROLE vinelm LOGIN")
        connection.execute("CREATE DATABASE vinelm OWNER vinelm")
    monkeypatch.setenv("PGHOST", "127.0.0.1")
    monkeypatch.setenv("PGPORT", str(server.port))


@pytest.mark.long
@pytest.mark.parametrize("page", RUN, ids=named)
def test_a_page_shows_what_is_printed_today(page, tmp_path, request):
    if page.name == FLEET:
        request.getfixturevalue("fleet_servers")
    text = page.read_text(encoding="utf-8")
    assert script.fresh(text, script.Folder(tmp_path)) == text, "run scripts/page_outputs.py"


def made(tmp_path, text):
    return script.fresh(text, script.Folder(tmp_path))


def test_a_command_s_output_is_put_below_it(tmp_path):
    page = "<!-- run -->\n```console\n$ echo one\nold\n$ echo two \\\n  three\n```\n"
    assert made(tmp_path, page) == "<!-- run -->\n```console\n$ echo one\none\n$ echo two \\\n  three\ntwo three\n```\n"


def test_what_is_left_out_may_be_anything(tmp_path):
    page = "<!-- run -->\n```console\n$ seq 5\n1\n...\n5\n$ echo took 3.2 s\ntook ... s\n```\n"
    assert made(tmp_path, page) == page
    assert made(tmp_path, page.replace("...\n5", "...\n6")) == page.replace("1\n...\n5", "1\n2\n3\n4\n5")


def test_python_and_its_output(tmp_path):
    page = "<!-- file: a.txt -->\n```text\nhello\n```\n\n<!-- run -->\n```python\nprint(open('a.txt').read())\n```\n\n"
    page += "<!-- output -->\n```text\n```\n"
    assert made(tmp_path, page).endswith("<!-- output -->\n```text\nhello\n\n```\n")


def test_a_failing_command_shows_its_error_and_the_next_one_runs(tmp_path):
    page = "<!-- run: with docs/examples -->\n```console\n$ echo no >&2; exit 2\n$ ls models.toml\n```\n"
    assert made(tmp_path, page).splitlines()[2:6] == ["$ echo no >&2; exit 2", "no", "$ ls models.toml", "models.toml"]


def test_blocks_that_cannot_be_run_are_refused(tmp_path):
    with pytest.raises(script.PageError, match="begins with its first command"):
        made(tmp_path, "<!-- run -->\n```console\nno command\n$ echo\n```\n")
    with pytest.raises(script.PageError, match="no Python was run"):
        made(tmp_path, "<!-- output -->\n```text\n```\n")


def test_a_command_may_be_run_first_in_a_folder_with_files(tmp_path):
    page = "<!-- run: with docs/examples after mv models.toml after.toml -->\n"
    page += "```console\n$ ls models.toml after.toml 2>&1\n```\n"
    assert "after.toml\n" in made(tmp_path, page)
    assert "\nmodels.toml" not in made(tmp_path, page)


def test_the_readme_is_a_page():
    assert ROOT / "README.md" in set(script.pages())
