from .app import Gateway as Gateway
from .keys import KeyBook as KeyBook
