"""`darkroom plan`: what each stale stage will take, in memory, disk and time, before it is paid for."""
