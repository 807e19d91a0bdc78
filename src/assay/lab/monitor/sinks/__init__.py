"""Sends a run's metrics, scores and pages to other programs, a file for each of them."""
