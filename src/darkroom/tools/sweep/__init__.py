"""`darkroom sweep`: points of a search over parameters, each in a folder of its own, run as one DAG."""
