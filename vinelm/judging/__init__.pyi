from .judge import LLMJudge as LLMJudge
from .judge import llm_judge as llm_judge
from .judgement import JUDGED as JUDGED
from .judgement import Judgement as Judgement
from .judgement import verdict_of as verdict_of
from .labelled import scored_by_labels as scored_by_labels
