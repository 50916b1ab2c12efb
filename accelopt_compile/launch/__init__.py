"""Calling an adopted kernel from a compiled graph: the operators, their Inductor lowering, and the launcher."""
