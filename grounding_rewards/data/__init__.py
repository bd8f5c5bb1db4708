"""Images and their rows, from any folder or dataset, and logs of what models wrote about them."""
