"""The machine: files, processes, signals, random streams, memory, and the one style of figures."""
