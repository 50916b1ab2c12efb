"""A workload as values over loop atoms, views as index arithmetic, nests as schedules: what every generator starts from.

Knows no language. `values.Graph(workload)` and `nests.schedule(graph)` are where a backend begins.
"""
