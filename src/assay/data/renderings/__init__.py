"""One file per way of writing a conversation as text."""
