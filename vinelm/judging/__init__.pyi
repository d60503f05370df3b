from .judge import LLMJudge as LLMJudge
from .judge import llm_judge as llm_judge
from .judgement import Judgement as Judgement
from .reference import AsToday as AsToday
