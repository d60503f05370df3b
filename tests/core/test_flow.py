"""Templates that branch: which stages may follow, and the tries that they give."""

import random

import numpy as np
import pytest

from vinelm import Branch, Loop, Parallel, Stage, Template, TemplateError
from vinelm.template import END
from vinelm.template.flow import Position
from vinelm.trie.trie import Trie

M = ("a", "b")


def stage(name, models=M, *, answerable=True):
    return Stage(name, models, answerable=answerable)


ROUTED = Template(
    (
        stage("router", answerable=False),
        Branch({"search": (stage("search"), stage("grade", ("a",))), "answer": (), "refuse": END}),
        stage("write"),
    )
)


def names(template, *done):
    return [following.name for following in template.arms_after(done)]


def test_an_arm_rejoins_or_ends():
    assert names(ROUTED) == ["router"]
    assert names(ROUTED, "router") == ["search", "write"]
    assert names(ROUTED, "router", "search", "grade") == ["write"]
    assert names(ROUTED, "router", "write") == []
    assert ROUTED.flow.positions[ROUTED.flow.at(["router"])].may_end
    with pytest.raises(TemplateError, match="does not allow the stages"):
        ROUTED.arms_after(["write"])
    assert not ROUTED.is_linear
    with pytest.raises(TemplateError, match="branches"):
        _ = ROUTED.invocations


def test_arms_with_the_same_stage_are_one_until_they_differ():
    template = Template((Branch({"x": (stage("w"), stage("p")), "y": (stage("w"), stage("q"))}),))
    assert names(template) == ["w"]
    assert names(template, "w") == ["p", "q"]


def test_a_loop_that_branches_counts_its_turns():
    template = Template(
        (
            Loop((stage("boss", answerable=False), Branch({"r": (stage("research"),), "done": END})), times=2),
            stage("never"),
        )
    )
    assert names(template, "boss") == ["research"]
    assert names(template, "boss", "research") == ["boss"]
    assert names(template, "boss", "research", "boss", "research") == ["never"]
    assert template.depth == 5


def test_a_loop_left_early():
    loop = Loop((stage("act"), stage("replan")), times=3, early_exit=True)
    template = Template((stage("plan"), loop, stage("final")))
    assert names(template, "plan", "act", "replan") == ["act", "final"]
    assert names(template, "plan", *("act", "replan") * 3) == ["final"]
    assert not template.is_linear
    at_the_end = Template((stage("plan"), loop))
    assert at_the_end.is_linear
    assert [s.name for s in at_the_end.invocations][-2:] == ["act", "replan"]


def test_parallel_stages_are_joint():
    template = Template((Parallel((stage("law"), stage("tax"))), stage("judge")))
    assert [s.name for s in template.invocations] == ["law", "tax", "judge"]
    assert [template.flow.positions[n].is_joint for n in range(4)] == [False, True, False, False]
    assert isinstance(template.flow.positions[0], Position)


def test_what_no_answer_follows_is_left_out():
    template = Template((Branch({"x": (stage("x"),), "log": (stage("log", answerable=False),)}),))
    assert names(template) == ["x"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Branch({"only": ()}), "at least two arms"),
        (lambda: Branch({"x": (END, stage("x")), "y": ()}), "goes on after END"),
        (lambda: Loop((stage("x"),), 2, memory=0), "memory is 0"),
        (lambda: Loop((stage("x"),), 2, order="random"), "order is 'random'"),
        (lambda: Loop((stage("x"),), 2, memory=1, order="ignored"), "choose one way"),
        (lambda: Parallel((stage("x"),)), "different names"),
        (lambda: Template((stage("x"), END)), "END stands outside"),
        (lambda: Template((Branch({"x": (stage("w"),), "y": (stage("w", ("a",)),)}),)), "'w' is declared twice with different"),
        (lambda: Template((Loop((Branch({"x": (stage("x"),), "y": (stage("y"),)}),), 10_001),)), "more than 10,000"),
    ],
)
def test_refuses_in_one_line(make, message):
    with pytest.raises(TemplateError, match=message) as error:
        make()
    assert "\n" not in str(error.value)


def random_steps(rng, depth=0):
    steps = []
    for _ in range(rng.randint(1, 2)):
        kind = rng.random()
        if depth < 2 and kind < 0.3:
            arms = {str(i): random_steps(rng, depth + 1) if rng.random() < 0.8 else () for i in range(rng.randint(2, 3))}
            steps.append(Branch({label: (*arm, END) if rng.random() < 0.2 else arm for label, arm in arms.items()}))
        elif depth < 2 and kind < 0.5:
            steps.append(Loop(random_steps(rng, depth + 1), rng.randint(1, 2), early_exit=rng.random() < 0.5))
        else:
            steps.append(stage(rng.choice("uvwxyz"), answerable=True))
    return tuple(steps)


def words(steps, rest):
    """Every sequence of stages of the steps, written down from their meaning. A word that ends with "." runs no further."""
    if not steps:
        return {()} if not rest else words(rest[0], rest[1:])
    step, behind = steps[0], (steps[1:], *rest)
    if isinstance(step, Stage):
        return {(step.name, *word) for word in words(*behind_of(behind))}
    if step == END:
        return {()}
    if isinstance(step, Branch):
        return set().union(*(words(arm, behind) for arm in step.arms.values()))
    found = set()
    is_last = not any(behind)
    for turns in range(1, step.times + 1):
        if turns == step.times or step.early_exit or is_last:
            found |= words(step.stages * turns, behind)
    return found


def behind_of(rest):
    return rest[0], rest[1:]


@pytest.mark.parametrize("seed", range(150))
def test_the_automaton_allows_what_the_steps_mean(seed):
    rng = random.Random(seed)
    try:
        template = Template(random_steps(rng))
    except TemplateError:
        return
    flow = template.flow
    allowed, waiting = set(), [((), 0)]
    while waiting:
        word, at = waiting.pop()
        allowed.add(word)
        waiting += [((*word, name), after) for name, after in flow.positions[at].arms.items()]
    if not template.is_linear:  # ending early is the application's right everywhere: what may come next is compared
        assert allowed == {word[:k] for word in words(template.steps, ()) for k in range(len(word) + 1)}


@pytest.mark.parametrize("seed", range(60))
def test_a_trie_has_every_history_once(seed):
    rng = random.Random(1000 + seed)
    try:
        template = Template(random_steps(rng))
    except TemplateError:
        return
    flow = template.flow
    expected, waiting = [], [((), 0)]
    while waiting:
        history, at = waiting.pop()
        if len(expected) > 3000:
            return
        expected.append(history)
        waiting += [
            ((*history, (name, model)), after)
            for name, after in flow.positions[at].arms.items()
            for model in template.stage(name).models
        ]
    trie = Trie.from_template(template)

    assert sorted(tuple(trie.edges(node)) for node in range(len(trie))) == sorted(expected)
    for node in range(len(trie)):
        stages = [name for name, _ in trie.edges(node)]
        assert trie.node(trie.prefix(node), stages) == node
        below = [at for arm in trie.arms(node).values() for at in arm]
        assert below == trie.children(node)
        first = trie.next_stage[node]
        assert list(trie.arms(node))[:1] == ([trie.stages[first]] if first >= 0 else [])
    assert trie.is_linear == all(len(trie.arms(node)) <= 1 for node in range(len(trie)))


def test_it_is_the_same_in_every_process():
    trie = Trie.from_template(ROUTED)
    order = [tuple(trie.edges(node)) for node in range(1, 5)]
    assert order == [
        (("router", "a"),),
        (("router", "a"), ("search", "a")),
        (("router", "a"), ("search", "a"), ("grade", "a")),
        (("router", "a"), ("search", "a"), ("grade", "a"), ("write", "a")),
    ]


def test_plain_json_and_back():
    for template in (ROUTED, Template((Parallel((stage("p"), stage("q"))), Loop((stage("x"),), 25, memory=2)))):
        assert Template.from_dict(template.to_dict()) == template
        assert hash(template) == hash(Template.from_dict(template.to_dict()))

    assert np.array_equal(Trie.from_template(ROUTED).levels[1], Trie.from_template(ROUTED).children(0))


def test_no_request_ends_between_stages_of_one_superstep():
    joint = Parallel((stage("law"), stage("tax")))
    for template in (
        Template((joint, stage("judge"))),
        Template((stage("router"), Branch({"experts": (joint,), "judge": ()}), stage("judge"))),
    ):
        trie = Trie.from_template(template)
        ends = {trie.stages[trie.stage[at]] for at in np.flatnonzero(trie.answerable)}
        assert ends == {each.name for each in template.stages} - {"law"}
