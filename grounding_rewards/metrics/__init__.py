"""Metrics of predictions, with intervals; each module says what its metrics are."""
