from .act import run_snippet as run_snippet
from .dataset import load_questions as load_questions
from .node import Node as Node
from .source import GraphSource as GraphSource
from .workflow import graphqa as graphqa
