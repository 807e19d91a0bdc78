"""Per-token policy losses, one algorithm a file; `assay.rl.losses` is their register."""
