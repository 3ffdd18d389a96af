"""The one error that a person reads: what is wrong, where, and what to do."""


class DarkroomError(Exception):
    """A fault in the input, the configuration or an artifact.

    The command line prints its text as one sentence without a traceback and exits with 1. Every other exception is
    a fault of Darkroom and keeps its traceback.
    """
