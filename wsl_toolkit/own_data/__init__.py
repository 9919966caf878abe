"""Ambiguous labels of one's own: audit them, fit a classifier, clean the labels, serve the model."""
