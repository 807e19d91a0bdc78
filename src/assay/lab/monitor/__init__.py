"""Observes a run while it trains: progress, guards, health, milestones."""
