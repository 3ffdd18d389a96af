"""The commands for people: check, plan, doctor, verify, compare, sample, preset."""
