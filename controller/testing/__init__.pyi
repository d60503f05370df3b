from .brute_force import brute_force as brute_force
from .load_monitors import LoadMonitorContract as LoadMonitorContract
from .random_cases import grid_annotated as grid_annotated
from .random_cases import random_annotated as random_annotated
from .random_cases import random_question as random_question
