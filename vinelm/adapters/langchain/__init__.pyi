from .chat_model import VineChatModel as VineChatModel
from .middleware import VineMiddleware as VineMiddleware
