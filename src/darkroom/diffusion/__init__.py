"""Paths between data and noise, their losses, and the samplers that follow them."""
