"""Small templates: a chain with a loop, loops that merge histories, and some of those branch."""

from vinelm.template import Branch, Loop, Stage, Template


def make_template(n_models: int = 2, depth: int = 3, stop: str = "workflow") -> Template:
    """generate, then repair up to depth - 1 times."""
    models = tuple(f"m{i}" for i in range(n_models))
    return Template((Stage("generate", models), Loop((Stage("repair", models),), depth - 1)), stop)


def agent(n_models, times, **settings):
    models = tuple(f"m{i}" for i in range(n_models))
    return Template((Loop((Stage("agent", models),), times, **settings),))


def branching(times, **settings):
    two = ("m0", "m1")
    inner = Branch({"search": (Stage("search", two, answerable=False),), "code": (Stage("code", two),)})
    return Template((Stage("plan", ("m0",), answerable=False), Loop((inner,), times, **settings)))
