from .base import Evidence as Evidence
from .base import PolicyChoice as PolicyChoice
from .base import PolicyResult as PolicyResult
from .votes import UntilTwoAgree as UntilTwoAgree
from .votes import VoteOfK as VoteOfK
