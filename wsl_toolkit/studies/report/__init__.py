"""Tables and figures of a study: terminal, Markdown, LaTeX, CSV and one self-contained HTML page."""
