"""A client that is a function: for tests, demonstrations, and ablations that need no language model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from accelopt_compile.llm.client import Reply, Request, Usage
from accelopt_compile.llm.replies import estimated_tokens


class ScriptedClient:
    """Answers with what `answer` returns; text becomes a reply with estimated usage. `answer` may be called from several
    threads at once."""

    def __init__(self, answer: Callable[[Request], str | Reply]) -> None:
        self._answer = answer

    def ask(self, request: Request) -> Reply:
        """The script's answer; an empty text is the problem "empty", as it is with an endpoint."""
        said = self._answer(request)
        if isinstance(said, Reply):
            return said
        prompt = estimated_tokens(request.system + request.user)
        usage = Usage(prompt=prompt, completion=estimated_tokens(said), estimated=True)
        reply = Reply(text=said, usage=usage, model=request.model)
        return reply if said.strip() else replace(reply, problem="empty", detail="the answer holds no text")
