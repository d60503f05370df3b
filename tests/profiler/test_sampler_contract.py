"""The contract of samplers: ours, and the fakes of these tests."""

from vinelm.profiler import CascadeSampler, ExhaustiveSampler, PricedSampler
from vinelm.profiler.testing import SamplerContract


class TestCascade(SamplerContract):
    def make_sampler(self, template, catalog, request_ids):
        return CascadeSampler(template, request_ids, 3)


class TestExhaustive(SamplerContract):
    def make_sampler(self, template, catalog, request_ids):
        return ExhaustiveSampler(template, request_ids)


class TestPriced(SamplerContract):
    def make_sampler(self, template, catalog, request_ids):
        return PricedSampler(template, catalog, request_ids, 3, continued_share=0.2)
