from .application import AppGraph as AppGraph
from .application import read_application as read_application
from .project import Project as Project
from .project import make_project as make_project
