"""A user's own files: which installed dataset reads them, and rows to predict that carry no labels."""
