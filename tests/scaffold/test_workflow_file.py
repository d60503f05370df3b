"""What is known later is written into a workflow file, and nothing else of it changes."""

from vinelm.scaffold.workflow_file import with_defaults

TEXT = """
# TODO: which model runs today at write, review? Give its name in models.toml: Stage(..., default=NAME).
template = Template((Stage("write", answerable=False), Loop((Stage("review"), Stage("w"))), Stage("fix", default="a")))
"""


def test_stages_without_a_default_get_one_and_the_question_goes():
    new = with_defaults(TEXT, {"write": 'gpt-"5"', "review": "b", "fix": "c", "none": "d"})
    assert new == (
        '\ntemplate = Template((Stage("write", default="gpt-\\"5\\"", answerable=False), '
        'Loop((Stage("review", default="b"), Stage("w"))), Stage("fix", default="a")))\n'
    )
    assert with_defaults(new, {"review": "e"}) == new
