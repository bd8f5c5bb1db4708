"""Pages, plots and tables of what was measured: one HTML file each, which loads nothing."""
