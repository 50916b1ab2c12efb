"""The search: a beam of kernels, plans for each, attempts at each plan, and a memory of what helped.

Start reading at `loop.search`. `task` has the settings and what goes in and comes out, `proposer` the protocol that
the built-in proposer and the LLM agents share, `simulated` a world in which all of it runs without a compiler.
"""

from accelopt_compile.search.budget import Budget, allot
from accelopt_compile.search.loop import SearchInterrupted, search
from accelopt_compile.search.memory import Memory
from accelopt_compile.search.proposer import NoSource, Proposer, TeachingPair
from accelopt_compile.search.state import SearchState
from accelopt_compile.search.task import SearchResult, SearchSettings, SearchTask, Tried

__all__ = [
    "Budget",
    "Memory",
    "NoSource",
    "Proposer",
    "SearchInterrupted",
    "SearchResult",
    "SearchSettings",
    "SearchState",
    "SearchTask",
    "TeachingPair",
    "Tried",
    "allot",
    "search",
]
