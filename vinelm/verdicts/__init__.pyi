from .store_evaluation import evaluate as evaluate
from .verification import verify as verify
from .verification_result import Verification as Verification
from .workflow_comparison import compare_workflows as compare_workflows
