"""Options from a Python function: one more keyword is one more option, with its default and its text."""

import click
import pytest

from vinelm.cli.declared import declared, keywords_of, text_of

VERB = '''
raise ImportError("a help reads this file, and does not import it")

WORKERS = 6


def verb(store: str, models: str | None = None, /, *, workers: int = WORKERS, budget_usd: float | None = None,
         check: bool = True, signals: bool = False, columns: tuple = (), on_done: object = None) -> None:
    """Do it.

    Args:
        store: Where.
        models: Which models, as ``vinelm init`` takes them. In Python also an object. None: all
            of them.
        workers: How many at a time.
        budget_usd: At most this, whatever ``workers`` says.
        check: Look twice.
        signals: Look at signals.
        columns: A column. Repeatable.
        on_done: Called.

    Raises:
        Error: Never.
    """
'''


@pytest.fixture
def verb(tmp_path, monkeypatch, request):
    (tmp_path / f"{request.node.name}.py").write_text(VERB)
    monkeypatch.syspath_prepend(tmp_path)
    return f"{request.node.name}:verb"


def test_each_keyword_is_an_option_with_its_default_and_text(verb):
    @click.command()
    @declared(verb, "signals", models=("--models NAME,NAME", str))
    def command(**given):
        click.echo(given)

    shown = {one.name: one for one in command.params}
    assert list(shown) == ["models", "workers", "budget_usd", "check", "columns"]
    assert shown["models"].help == "Which models, as `vinelm init` takes them [default: all of them]."
    assert (shown["models"].metavar, shown["workers"].default) == ("NAME,NAME", 6)
    assert shown["budget_usd"].help == "At most this, whatever --workers says."
    assert (shown["check"].opts, shown["check"].secondary_opts, shown["check"].default) == (["--check"], ["--no-check"], True)
    assert (shown["columns"].opts, shown["columns"].multiple) == (["--column"], True)
    context = command.make_context("x", ["--budget-usd", "$2", "--no-check", "--column", "a", "--column", "b"])
    assert context.params == {"models": None, "workers": 6, "budget_usd": 2.0, "check": False, "columns": ("a", "b")}


def test_only_some_of_them(verb):
    @click.command()
    @declared(verb, only=("workers",))
    def command(workers):
        pass

    assert [one.name for one in command.params] == ["workers"]


def test_a_keyword_without_a_text_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "silent_verb.py").write_text('def verb(*, more: int = 1) -> None:\n    """Do it."""\n')
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyError, match="more"):
        keywords_of("silent_verb:verb")


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("A file. In Python, also: an object. None: ``a.db``.", "A file [default: a.db]."),
        ("One of :data:`vinelm.estimator.ESTIMATORS`.", "One of ESTIMATORS."),
        ("With ``serve_n``: that.", "With --serve-n: that."),
        ("Nothing special.", "Nothing special."),
    ],
)
def test_what_a_docstring_says_is_said_in_options(said, shown):
    assert text_of(said, ["serve_n"]) == shown
