from .application import VineLM as VineLM
from .drift import Remedy as Remedy
from .drift import drift as drift
from .drift import update as update
from .estimation import estimate as estimate
from .planning import plan as plan
from .profiling import profile as profile
from .served_evidence import EvidenceConfig as EvidenceConfig
