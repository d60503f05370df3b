from .comparison.judged_policy import JudgedPolicy as JudgedPolicy
from .comparison.result import Evaluation as Evaluation
from .off_policy.intervals import OffPolicyEstimate as OffPolicyEstimate
from .outcome_table import OutcomeTable as OutcomeTable
