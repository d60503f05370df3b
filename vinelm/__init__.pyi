from .adapters.langchain.chat_model import VineChatModel as VineChatModel
from .adapters.langchain.middleware import VineMiddleware as VineMiddleware
from .annotated_trie import AnnotatedTrie as AnnotatedTrie
from .api.application import VineLM as VineLM
from .backends.offline.text_writer import TextWriter as TextWriter
from .catalog.catalog import Catalog as Catalog
from .catalog.model import Model as Model
from .catalog.model import Price as Price
from .controller.planning.decision import Decision as Decision
from .controller.planning.planner import Planner as Planner
from .controller.session.session import Session as Session
from .dataset import read_jsonl as read_jsonl
from .errors import VineLMError as VineLMError
from .objective import Objective as Objective
from .observation import Observation as Observation
from .recorded_table import RecordedTable as RecordedTable
from .template import Loop as Loop
from .template import Stage as Stage
from .template import Template as Template
from .traces.store.store import ObservationStore as ObservationStore
from .trie import Trie as Trie
from .vinefile import load_trie as load_trie
from .vinefile import save_trie as save_trie
from .workflow import Request as Request
from .workflow import Workflow as Workflow

__version__: str
