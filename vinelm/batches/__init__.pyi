from .batch import batch as batch
from .result import BatchResult as BatchResult
