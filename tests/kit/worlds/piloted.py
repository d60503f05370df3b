"""An application of one step under an autopilot."""

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from kit.worlds.replays import truth
from vinelm import VineLM
from vinelm.autopilot import Autopilot
from vinelm.autopilot import autopilot as threads


class State(TypedDict, total=False):
    number: int
    label: str


def equal(number):
    return truth(number).upper() + "."


class Service:
    """An application of one step, whose autopilot looks at its store when it is told to. It asks its model ``calls`` times."""

    calls = 1

    def __init__(self, path, catalog, **options):
        settings = {"max_loss": 3.0, "shadow_usd_per_day": 50.0, "every_s": 36_000.0, "pause_s": 0.0, **options}
        self.pilot = Autopilot(path, **settings)
        self.vine = VineLM(catalog, autopilot=self.pilot)
        graph = StateGraph(State)

        def grade(state: State, model):
            answers = [model.invoke([("user", f"Question {state['number']}")]).content for _ in range(self.calls)]
            return {"label": answers[-1]}

        graph.add_node("grade", self.vine.stage("grade", grade, default="big"))
        graph.add_edge(START, "grade")
        graph.add_edge("grade", END)
        self.app = graph.compile()

    def ask(self, numbers, talk=None):
        """Ask for each number; ``talk`` names the conversation of all of them."""
        config = None if talk is None else {"configurable": {"thread_id": talk}}
        return [
            self.app.invoke({"number": number}, config, context=self.vine.context(request_id=f"r{number}"))["label"]
            for number in numbers
        ]

    def look(self):
        """What the two threads do now and then."""
        self.pilot._look()
        self.pilot._looks += threads.SETTLED_S
        self.pilot._look()
        self.pilot._go_on()
        self.pilot._look()
        return self.pilot.state_of("name:grade")
