"""Metrics of answered images, with intervals; what a metric is says each module."""
