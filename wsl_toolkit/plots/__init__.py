"""Figures, in one style: colour-blind safe, readable in print, no window needed."""
