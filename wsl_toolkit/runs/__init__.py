"""A tracked, resumable run: its folder on disk, its result, its figures, and its record in MLflow."""
