"""Models: load them, ask them about images, and attack them."""
