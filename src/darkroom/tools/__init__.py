"""User commands: check, plan, doctor, verify, compare, sample, preset."""
