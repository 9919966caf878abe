"""MLflow: stores, and the delivery of what is on disk. Only this package and `own_data.serving` import MLflow."""
