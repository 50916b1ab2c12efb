"""A run as one page: read the run's files, turn them into plain data, draw it. Read in this order: contents, reading,
history, lineage, model, charts, render."""
