"""Arms put side by side: pairing, fairness, foreign results, tables. Without torch."""
