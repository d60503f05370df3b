from .act import run_snippet as run_snippet
from .dataset import load_questions as load_questions
from .source import GraphSource as GraphSource
from .source import Node as Node
from .workflow import graphqa as graphqa
