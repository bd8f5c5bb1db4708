"""Any trainer's or our own log of completions, read as predictions on images."""
