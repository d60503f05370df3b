"""The toy on a backend that prices its calls beforehand, as all backends do that cost money."""

from dataclasses import replace

from profiling_toy import ToyBackend, load

from vinelm.backends.offline import OfflineChatModel


class PricedModel(OfflineChatModel):
    """Asks its guard, as remote models do."""

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        source, call = self.binding.source, self.binding.call
        if call.guard is not None:
            call.guard.before(source.upper_bound_usd(self.binding.model, messages))
        return super()._generate(messages, stop, run_manager, **kwargs)

    def _report(self, usage, **kwargs):
        call = self.binding.call
        if call.guard is not None:
            call.guard.paid(usage)
        super()._report(usage, **kwargs)


class PricedBackend(ToyBackend):
    """Its calls are bounded far above what the catalog's price says, and cost what the toy's cost."""

    upper = 0.01

    def chat_model(self, model, call):
        return PricedModel.bound(self, model, call)

    def upper_bound_usd(self, model, messages, **options):
        return self.upper


def load_priced(**settings):
    loaded = load(**settings)
    return replace(loaded, backends={"test": PricedBackend()})
