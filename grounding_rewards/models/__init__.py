"""Models: load them, ask them about films, and attack them."""
