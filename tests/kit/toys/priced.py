"""The toy on a backend that prices its calls beforehand, as all backends do that cost money."""

from dataclasses import replace

from kit.toys.profiling import ToyBackend, load
from vinelm.backends import OfflineChatModel


class PricedModel(OfflineChatModel):
    """Asks its guard before the call with an upper bound on its price, as remote models do."""

    def _answer(self, messages):
        source, model, call = self.binding.source, self.binding.model, self.binding.call
        permit = None if call.guard is None else call.guard.authorize(source.upper_bound_usd(model, messages))
        return *source.answer(model, call, len(messages)), permit


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
