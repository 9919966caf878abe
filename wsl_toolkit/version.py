"""The toolkit's version, alone in its module so that nothing need be imported to read it."""

__version__ = "0.1.0"
API_VERSION = (1, 0)
