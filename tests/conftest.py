"""What all tests share."""

from hypothesis import settings

# The same examples on every run and machine, and no deadline: a busy machine is not a fault.
settings.register_profile("darkroom", derandomize=True, deadline=None)
settings.load_profile("darkroom")
