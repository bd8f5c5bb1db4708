"""The commands of `grounding-rewards`, one file each."""
