from .catalog import Catalog as Catalog
from .model import LongPromptRates as LongPromptRates
from .model import Model as Model
from .model import Price as Price
from .model import ReplicaGroup as ReplicaGroup
from .prices import bundled_prices as bundled_prices
from .prices import find_price as find_price
