"""Train one model or many. Knows neither MLflow nor click, and writes no files but checkpoints."""
