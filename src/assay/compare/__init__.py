"""Compares arms: pairing, fairness, foreign results, tables. Imports no torch."""
