from .classeval import code as code
from .exam_answers import exams as exams
