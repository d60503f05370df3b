import pytest

from vinelm.errors import TemplateError
from vinelm.template import Branch, Loop, Parallel, Stage, Template
from vinelm.template.kinds import of_kinds

NL2SQL = Template((Stage("generate"), Loop((Stage("repair"),), times=2)))


def test_unrolls_loops_in_order():
    template = Template((Stage("plan"), Loop((Stage("write"), Stage("test")), times=2), Stage("sum")))
    assert [s.name for s in template.invocations] == ["plan", "write", "test", "write", "test", "sum"]
    assert [s.name for s in template.stages] == ["plan", "write", "test", "sum"]
    assert template.depth == 6
    assert template.stage_after(5).name == "sum"
    assert template.stage_after(6) is None


def test_bind_fills_open_stages_and_refuses_unknown_models():
    bound = NL2SQL.bind(["a", "b"])
    assert bound.models == ("a", "b")
    assert bound.stage("repair").default_model == "a"
    with pytest.raises(TemplateError, match="catalog lacks"):
        Template((Stage("generate", ("c",)),)).bind(["a", "b"])
    with pytest.raises(TemplateError, match="bind"):
        _ = NL2SQL.models


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Stage(""), "no name"),
        (lambda: Stage("g", ()), "allows no model"),
        (lambda: Stage("g", ("a", "a")), "twice"),
        (lambda: Stage("g", ("a",), default="b"), "default"),
        (lambda: Loop((), 1), "at least one stage"),
        (lambda: Loop((Stage("g"),), 0), "times"),
        (lambda: Template(()), "at least one stage"),
        (lambda: Template((Stage("g"), Stage("g"))), "declared twice"),
        (lambda: Template((Stage("g", answerable=False),)), "answerable"),
        (lambda: Template((Stage("g"),), stop="never"), "stop"),
        (lambda: NL2SQL.stage("x"), "it has generate, repair"),
    ],
)
def test_says_what_does_not_fit(build, says):
    with pytest.raises(TemplateError, match=says) as caught:
        build()
    assert "\n" not in str(caught.value)


def test_survives_plain_json():
    template = Template((Stage("plan", ("a",), answerable=False), Loop((Stage("solve", default="a"),), 3)), stop="oracle")
    assert Template.from_dict(template.to_dict()) == template
    assert template.with_stop("workflow").stop == "workflow"


def test_where_the_template_leaves_no_choice_it_tells_what_follows():
    routed = Template((Stage("router"), Branch({"search": (Stage("search"),), "answer": ()}), Stage("write")))
    side_by_side = Template((Parallel((Stage("a"), Stage("b"))), Stage("c")))
    assert (NL2SQL.places, NL2SQL.own_ends, NL2SQL.noted("arms")) == (None, {"repair"}, None)
    assert (routed.places, routed.own_ends) == (routed.flow, {"router", "search", "write"})
    assert (routed.noted("arms"), routed.certain_stages) == ("arms", ())
    assert (side_by_side.places, side_by_side.own_ends) == (side_by_side.flow, {"c"})  # the number of stages is no place
    assert [stage.name for stage in side_by_side.certain_stages] == ["a", "b", "c"]


def test_only_where_no_stage_is_chosen_requests_go_on_past_their_end():
    routed = Template((Stage("router"), Branch({"search": (Stage("search"),), "answer": ()}), Stage("write")))
    by_kind = of_kinds(NL2SQL, ("easy", "hard"))
    templates = NL2SQL, NL2SQL.with_stop("oracle"), by_kind, routed
    assert [template.goes_on_past_ends for template in templates] == [True, False, True, False]
    for template, rows, chosen, slots in ((NL2SQL, [1, 2], (), 3), (routed, [2], routed.stages, 0)):
        form = template.form
        assert (form.answered([1, 2]), form.chosen(template.stages), form.slots(3, 0)) == (rows, chosen, slots)
        assert form.answers_first is (template is NL2SQL)
        template.form.require_known_ends(TemplateError("unknown"))
    with pytest.raises(TemplateError, match="unknown"):
        routed.with_stop("oracle").form.require_known_ends(TemplateError("unknown"))
    assert not Template((Stage("a", answerable=False), Stage("b"))).form.answers_first


def test_the_invocations_are_those_of_the_automaton():
    """A last turn ends at its last answerable stage, also where a loop that is left early stands in it."""
    inner = Loop((Stage("e", answerable=False),), times=1, early_exit=True)
    template = Template((Loop((inner, Parallel((Stage("f"), Stage("g", answerable=False)))), times=2),))
    assert [stage.name for stage in template.invocations] == ["e", "f", "g", "e", "f"]
    assert template.depth == 5
    assert template.arms_after(["e", "f", "g", "e", "f"]) == ()
