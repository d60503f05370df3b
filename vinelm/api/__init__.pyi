from .application import VineLM as VineLM
from .estimation import estimate_store as estimate_store
from .estimation import require_same_workflow as require_same_workflow
from .estimation import with_provenance as with_provenance
