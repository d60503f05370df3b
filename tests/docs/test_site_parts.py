"""What the documentation site is made of: the link check, the references and the pages that are generated."""

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest

PARTS = Path(__file__).parents[2] / "scripts" / "docs_parts"


@pytest.fixture(scope="module", autouse=True)
def importable():
    sys.path.insert(0, str(PARTS))
    yield
    sys.path.remove(str(PARTS))


def problems(tmp_path, **pages):
    check = import_module("check_site")
    check.seen.cache_clear()
    for name, html in pages.items():
        (tmp_path / f"{name}.html").write_text(html)
    return list(check.problems(tmp_path))


def test_links_and_anchors_that_lead_nowhere(tmp_path):
    found = problems(
        tmp_path,
        index='<h1 id="top"></h1><a href="b.html#here"></a><a href="#top"></a><a href="c.html"></a><a href="b.html#gone"></a>',
        b='<p id="here"></p><a href="index.html"></a><a href="https://elsewhere.example/x"></a>',
    )
    assert found == ["index.html: c.html leads nowhere", "index.html: b.html#gone: the page has no such anchor"]


@pytest.mark.parametrize(
    "tag",
    ['<script src="https://x.example/a.js">', '<link rel="stylesheet" href="//x.example/a">', '<img src="http://x.example/a">'],
)
def test_what_is_loaded_from_elsewhere(tmp_path, tag):
    (line,) = problems(tmp_path, index=tag)
    assert line.endswith("from outside")


def test_a_style_that_loads_a_font(tmp_path):
    (tmp_path / "a.css").write_text("@font-face { src: url(https://fonts.example/a) }")
    assert problems(tmp_path, index="") == ["a.css: loads something from outside"]


def test_every_command_and_option_is_in_the_reference():
    from click import Context, Group

    from vinelm.cli.main import cli

    page = import_module("cli_reference").cli_reference()
    ctx = Context(cli, info_name="vinelm")
    for name in cli.list_commands(ctx):
        command = cli.get_command(ctx, name)
        assert f"\n## `vinelm {name}`\n" in f"\n{page}"
        if isinstance(command, Group):
            assert all(f"### `vinelm {name} {below}`" in page for below in command.commands)
        for option in command.params:
            assert option.param_type_name == "argument" or option.opts[-1] in page, (name, option.name)


def test_a_notebook_s_page_has_its_text_code_and_outputs(tmp_path):
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "\n", "Text."]},
        {
            "cell_type": "code",
            "source": ["1 + 1"],
            "outputs": [{"output_type": "execute_result", "data": {"text/plain": ["2"]}}],
        },
    ]
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": cells}))
    page = import_module("notebook_page").notebook_page(tmp_path / "n.ipynb")
    assert page.startswith("# Title\n\nText.\n\n[Download this notebook](n.ipynb)")
    assert "```python\n1 + 1\n```\n\n```{.text .cell-output}\n2\n```" in page


def test_the_drawing_of_the_packages_has_every_box_and_arrow():
    text = 'flowchart TD\n    core["core"]\n    cli["cli"]\n    api["api"]\n    api --> core\n    cli --> api\n'
    drawing = import_module("layers_picture").layers_picture(text)
    assert drawing.count("<rect") == 3
    assert drawing.count('class="line"') == 2
    assert drawing.index(">core<") < drawing.index(">cli<")
