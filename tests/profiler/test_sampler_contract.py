"""The contract of samplers: ours, and the fakes of these tests."""

from types import SimpleNamespace

from rounds_toy import DoublingRounds, TwoRounds

from vinelm.api import adaptive_sampler
from vinelm.estimator import Goal
from vinelm.profiler import CascadeSampler, ExhaustiveSampler, PricedSampler
from vinelm.profiler.testing import SamplerContract
from vinelm.workflow import Request


class TestCascade(SamplerContract):
    def make_sampler(self, template, catalog, request_ids):
        return CascadeSampler(template, request_ids, 3)


class TestExhaustive(SamplerContract):
    def make_sampler(self, template, catalog, request_ids):
        return ExhaustiveSampler(template, request_ids)


class TestPriced(SamplerContract):
    def make_sampler(self, template, catalog, request_ids):
        return PricedSampler(template, catalog, request_ids, 3, continued_share=0.2)


class TestNeyman(SamplerContract):
    def make_sampler(self, template, catalog, request_ids):
        return adaptive_sampler(template, catalog, request_ids, 3)


class TestNeymanWithAGoal(SamplerContract):
    def make_sampler(self, template, catalog, request_ids):
        return adaptive_sampler(template, catalog, request_ids, 3, goal=Goal.parse("floor:0.9"))


class TestTwoRounds(SamplerContract):
    def make_sampler(self, template, catalog, request_ids):
        return TwoRounds()


class TestDoublingRounds(SamplerContract):
    def make_sampler(self, template, catalog, request_ids):
        requests = [Request(request_id, {}) for request_id in request_ids]
        return DoublingRounds(SimpleNamespace(template=template, requests=requests))
