"""Samplers that propose in rounds, with a note of what they were given."""

from vinelm.requests.protocols import RequestPath


class TwoRounds:
    """Two fixed rounds over q0 to q2 and the models m0 and m1. ``shown`` has the cells of each call's observations."""

    def __init__(self):
        self._shown = []

    @property
    def shown(self):
        return self._shown

    def propose(self, round_, observations):
        self._shown.append([(row.request_id, row.prefix) for row in observations])
        rounds = [
            [RequestPath("q0", ("m0",)), RequestPath("q0", ("m0",)), RequestPath("q1", ("m1",))],
            [RequestPath("q2", ("m0", "m1", "m0"))],
        ]
        return rounds[round_] if round_ < len(rounds) else []


class DoublingRounds:
    """Doubles its rounds, and extends only the prefixes that were seen to go on: no forecast can know that beforehand."""

    def __init__(self, workflow):
        self._workflow, self._asked = workflow, []

    @property
    def asked(self):
        return self._asked

    def propose(self, round_, observations):
        self._asked.append((round_, len(observations)))
        models, requests = self._workflow.template.models, self._workflow.requests
        if round_ == 0:
            return [RequestPath(requests[0].id, (models[0],))]
        known = {(row.request_id, row.prefix): row for row in observations}
        fresh = [
            RequestPath(request.id, (model,)) for request in requests for model in models if (request.id, (model,)) not in known
        ]
        deeper = [
            RequestPath(request_id, (*prefix, model))
            for (request_id, prefix), row in known.items()
            if not row.stopped and len(prefix) < self._workflow.template.depth
            for model in models
            if (request_id, (*prefix, model)) not in known
        ]
        return (deeper + fresh)[: 2**round_]
