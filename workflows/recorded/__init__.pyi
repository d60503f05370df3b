from .code import code as code
from .exams import exams as exams
