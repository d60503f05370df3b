"""Requests of an application that branches, drawn from a known model: a silent router, a short arm, and a loop with a check."""

from dataclasses import dataclass

import numpy as np

from kit.catalogs import make_catalog
from kit.worlds.answers import sigmoid
from vinelm.estimator import make_estimator
from vinelm.rows.observation import Observation
from vinelm.signals import Outcome
from vinelm.template import Branch, Loop, Stage, Template

MODELS = ("m0", "m1")
PRICES = (1.0, 8.0)
ARMS = {"easy": (Stage("reply", MODELS),), "hard": (Loop((Stage("solve", MODELS),), 2),)}
TEMPLATE = Template((Stage("route", MODELS, answerable=False), Branch(ARMS)))


@dataclass(frozen=True)
class BranchingWorld:
    """One draw for each (stage, model) and request: a model that is asked again repeats itself.

    The harder a request, the more probably the router sends it to the loop. Right answers pass the check and look normal more
    often than wrong ones.
    """

    hard: np.ndarray
    right: dict
    passed: dict
    odd: dict
    kind: dict

    @classmethod
    def draw(cls, rng, n, *, ability=(-0.2, 1.6)):
        easy = rng.normal(0, 2.0, n)
        hard = np.stack([rng.random(n) < sigmoid(-1.2 * easy + lean) for lean in (0.3, -0.3)])
        right, passed, odd, kind = {}, {}, {}, {}
        for stage, help_ in (("reply", 0.0), ("solve", 0.8)):
            usual = rng.random(n) < 0.5
            for m, able in enumerate(ability):
                right[stage, m] = rng.random(n) < sigmoid(easy + able + help_)
                passed[stage, m] = rng.random(n) < np.where(right[stage, m], 0.9, 0.3)
                odd[stage, m] = rng.random(n) < np.where(right[stage, m], 0.1, 0.6)
                kind[stage, m] = np.where(right[stage, m], 0, np.where(usual, 1, 2 + m))
        return cls(hard, right, passed, odd, kind)

    def __len__(self):
        return self.hard.shape[1]

    def shown(self, q, ran):
        """The observed class and signal of the last of these (stage, model), and the stage that comes next."""
        stage, m = ran[-1]
        if stage == "route":
            return None, None, "solve" if self.hard[m, q] else "reply"
        firsts = []
        for before, model in ran[1:]:
            key = (before, int(self.kind[before, model][q]))
            firsts += [key] if key not in firsts else []
        number = firsts.index((stage, int(self.kind[stage, m][q])))
        goes_on = stage == "solve" and len(ran) == 2 and not self.passed[stage, m][q]
        return number, "odd" if self.odd[stage, m][q] else None, "solve" if goes_on else None

    def rows(self, paths):
        """The rows along some paths of models for each request."""
        for q in range(len(self)):
            done, classes = set(), {}  # classes are of the request, whatever the path
            for path in paths(q):
                ran = []
                stage = "route"
                for k, m in enumerate(path):
                    ran.append((stage, m))
                    number, signal, arm = self.shown(q, ran)
                    if number is not None:
                        number = classes.setdefault((stage, int(self.kind[stage, m][q])), len(classes))
                    if path[: k + 1] not in done:
                        done.add(path[: k + 1])
                        yield Observation(
                            request_id=f"q{q:05d}", prefix=tuple(MODELS[i] for i in path[: k + 1]), stage=stage,
                            success=stage != "route" and bool(self.right[stage, m][q]), stopped=arm is None, arm=arm,
                            cost_usd=PRICES[m] * (0.2 if stage == "route" else 1.0), latency_s=1.0, signal=signal,
                            answer_class=number,
                        )  # fmt: skip
                    if arm is None:
                        break
                    stage = arm

    def follow(self, annotated, plan):
        """Serve every request by a plan over outcomes or over paths: (right, dollars) of each."""
        trie, outcomes, found = annotated.trie, annotated.outcomes, []
        for q in range(len(self)):
            node, arm, ran, usd, place = 0, trie.stages[0], [], 0.0, -1
            stage = "route"
            while arm is not None:
                model = plan.next_model(node, arm)
                if model is None:
                    break
                m = MODELS.index(model)
                ran.append((stage, m))
                usd += PRICES[m] * (0.2 if stage == "route" else 1.0)
                node = trie.child(node, model, arm)
                number, signal, stage = self.shown(q, ran)
                arm = stage
                if annotated.policy == "signals":
                    number_of = {one.name: k for k, one in enumerate(TEMPLATE.stages)}
                    place = outcomes.seen(node, Outcome(signal, number), passed=stage is None, stage=number_of.get(stage)).place
                    arm = None if outcomes.arm[place] < 0 else trie.stages[outcomes.arm[place]]
            answers = ran[1:]
            last = answers[-1]
            if outcomes is not None and outcomes.returned_class(place) is not None:
                last = next(
                    a for k, a in enumerate(answers) if self.shown(q, ran[: k + 2])[0] == outcomes.returned_class(place)
                )
            found.append((bool(self.right[last][q]), usd))
        return np.array(found, float)


def path_trie(rows):
    """The estimate over paths."""
    return make_estimator("latent").fit(rows, TEMPLATE, make_catalog(2)).annotated_
