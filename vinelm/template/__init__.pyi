from .steps import END as END
from .steps import SKIP as SKIP
from .steps import Branch as Branch
from .steps import Loop as Loop
from .steps import Parallel as Parallel
from .steps import Stage as Stage
from .stop_rules import StopRule as StopRule
from .template import Template as Template
