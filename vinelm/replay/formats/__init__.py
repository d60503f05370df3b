"""A reader for each form of trace: :mod:`reading` finds the form and yields :class:`~vinelm.replay.formats.call.LoggedCall`."""
