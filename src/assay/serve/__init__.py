"""Serves a checkpoint with an OpenAI-compatible HTTP API."""
