from .registry import WORKFLOWS as WORKFLOWS
from .registry import available as available
from .registry import load_workflow as load_workflow
