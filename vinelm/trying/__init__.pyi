from .trial import Trial as Trial
from .trial import try_app as try_app
