"""Executes an experiment: stages, resuming, starting over, export."""
