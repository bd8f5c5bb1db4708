"""Files that appear whole, safe YAML, texts, legal values, versions: what knows nothing of boxes."""
