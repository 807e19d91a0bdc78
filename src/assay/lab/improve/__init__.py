"""What the records of a run say could be done better."""
