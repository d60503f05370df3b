from .judging.judged_policy import JudgedPolicy as JudgedPolicy
from .judging.result import Evaluation as Evaluation
from .off_policy.intervals import OffPolicyEstimate as OffPolicyEstimate
from .outcome_table import OutcomeTable as OutcomeTable
