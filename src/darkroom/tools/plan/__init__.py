"""`darkroom plan`: estimate the memory, disk space and time of each stale stage before a run."""
