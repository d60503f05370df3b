from .reading import Columns as Columns
from .reading import RequestSet as RequestSet
from .reading import read_dataset as read_dataset
