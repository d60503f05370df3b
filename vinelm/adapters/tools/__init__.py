"""Tools of an application that may be called ahead: declared, run in the shadow of a model's call, joined when asked for."""
