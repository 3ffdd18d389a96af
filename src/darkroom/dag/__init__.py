"""The DAG: its stages, the fingerprints of their code, what is stale and why, and its drawing."""
