"""What is trained and sampled: a language model, and the check of its shared path."""
