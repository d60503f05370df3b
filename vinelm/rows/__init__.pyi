from .observation import Observation as Observation
from .observation import Usage as Usage
