from .workflow import mathqa as mathqa
