"""The rewards in other trainers: a small module for each, which imports the trainer's library only in functions."""
