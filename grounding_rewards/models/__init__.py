"""Models: where they lie, before anything is loaded."""
