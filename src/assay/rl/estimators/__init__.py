"""Advantage estimators, one family a file; `assay.rl.advantages` is their register."""
