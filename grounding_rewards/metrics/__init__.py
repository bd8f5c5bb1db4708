"""Figures of answered films, with intervals; what a figure is says each module."""
