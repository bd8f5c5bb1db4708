"""A study: rewards × seeds from the same start, each run measured on images never trained on."""
