"""Results that other tools wrote: one reader for each format, one neutral form for all of them."""
