from .catalog import Catalog as Catalog
from .loading import read_catalog_file as read_catalog_file
from .model import Model as Model
from .model import Price as Price
from .model import bundled_prices as bundled_prices
from .secrets import redacted as redacted
