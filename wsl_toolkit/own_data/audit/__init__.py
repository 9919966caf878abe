"""A user's own candidate sets against every assumption: what they are, what they cannot teach, what fits them."""
