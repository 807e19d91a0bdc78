"""A stored step judged again under other settings, without sampling or training."""
