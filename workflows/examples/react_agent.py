"""Deprecated: see :mod:`vinelm.workflows.examples.react.app`."""

from vinelm.deprecation import moved

__getattr__ = moved(
    __name__,
    {
        "workflow": "vinelm.workflows.examples.react.app.workflow",
    },
)

if __name__ == "__main__":
    import runpy

    runpy.run_module("vinelm.workflows.examples.react.app", run_name="__main__")
