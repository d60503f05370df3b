from .raising import Raising as Raising
