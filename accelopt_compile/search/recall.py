"""Which lessons a prompt shows, in which order, within how many tokens.

Structure decides first: lessons of the same workload and family, by what they promise here. Lessons of other families come
behind them, by how well their words match the task's (BM25), and only if a word does. Everything here is a function of its
arguments. Not promised: that a lesson helps; ranking by words knows nothing of meaning.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Sequence

from accelopt_compile.records import Experience
from accelopt_compile.search.memory import Memory, promise, related
from accelopt_compile.search.task import SearchTask

SHARE_OF_PROMPT = 0.15
"""What lessons may take of a prompt at most: they save rounds, they do not make kernels faster (accelopt.md 3.3)."""

_CHARACTERS_A_TOKEN = 4
_FRAME_TOKENS = 8
"""Tokens of the heading and the rule around one lesson."""

_PASSED_OVER = 64
"""Lessons that did not fit after which the budget counts as used up: a memory may hold tens of thousands."""

_INDEXED = 4000
"""Characters of a lesson that are searched."""

_DTYPE_WORDS = {"f64": "float64 double", "f32": "float32", "bf16": "bfloat16", "f16": "float16 half"}
_STOP_WORDS = {"to", "is", "as", "like", "any", "all", "with", "full", "where", "native", "default", "copy"}
"""Parts of operators' names that are in every sentence."""

_NOTHING = re.compile(r"(there is |there was )?no (\w+ )?optimi[sz]ations?\b")
_SPEEDUP = re.compile(r"\d+(\.\d+)?\s?[x×](?!\w)")


def token_budget(prompt_tokens: int) -> int:
    """Tokens for lessons beside `prompt_tokens` of everything else, so that they are `SHARE_OF_PROMPT` of the whole."""
    return int(prompt_tokens * SHARE_OF_PROMPT / (1 - SHARE_OF_PROMPT))


def tokens_of(experience: Experience) -> int:
    """About how many tokens a lesson takes in a prompt: its title and text, four bytes a token, and what frames them."""
    text = f"{experience.title}\n{experience.lesson}"
    return _FRAME_TOKENS + math.ceil(len(text.encode(errors="replace")) / _CHARACTERS_A_TOKEN)


def shown(task: SearchTask, memory: Memory, budget_tokens: int) -> list[Experience]:
    """The lessons for a prompt: this run's own, newest first, then those of earlier runs, nearest first.

    Equal lessons are shown once, those that teach nothing never, and one that does not fit gives way to the next that
    does. In paper mode: the run's own queue, oldest first, nothing else; over the budget, the oldest are left out.
    """
    if not task.settings.use_prior:
        newest_first = within((e for e in memory.recent[::-1] if teaches(e)), budget_tokens)
        return newest_first[::-1]
    return within(distinct((*memory.recent[::-1], *ranked(task, memory.prior))), budget_tokens)


def fitting(experiences: Sequence[Experience], budget_tokens: int) -> list[Experience]:
    """`shown` for who has only a list that is ranked already, such as `Memory.recall` gives: its order is kept."""
    return within(distinct(experiences), budget_tokens)


def ranked(task: SearchTask, prior: Sequence[Experience]) -> list[Experience]:
    """Earlier runs' lessons, nearest first: related ones by promise, then strangers that share words with the task by
    how well they match. Ties go to the newer; `prior` comes newest first."""
    worth = [promise(task, e) for e in prior]
    usable = [i for i, weight in enumerate(worth) if weight > 0]
    near = sorted((i for i in usable if related(task, prior[i])), key=lambda i: -worth[i])
    strange = [i for i in usable if not related(task, prior[i])]
    scores = by_words(words_of(task), tuple(text_of(prior[i]) for i in strange))
    # The more a lesson gained, the more its match counts; two of equal match are as `promise` has them.
    matched = sorted(scores, key=lambda position: -scores[position] * worth[strange[position]])
    return [prior[i] for i in (*near, *(strange[position] for position in matched))]


def within(experiences: Iterator[Experience] | Sequence[Experience], budget_tokens: int) -> list[Experience]:
    """As many as fit, in order; one that is too long for what is left is passed over, until `_PASSED_OVER` in a row were."""
    kept: list[Experience] = []
    left, passed_over = budget_tokens, 0
    for experience in experiences:
        if (cost := tokens_of(experience)) <= left:
            kept.append(experience)
            left, passed_over = left - cost, 0
        elif (passed_over := passed_over + 1) == _PASSED_OVER:
            break
    return kept


def distinct(experiences: Sequence[Experience]) -> Iterator[Experience]:
    """Those that teach something, each lesson once: the first with a title or a text of the same words. Speedups in it
    make no difference, the direction does."""
    seen: set[tuple[bool, str]] = set()
    for experience in experiences:
        keys = {(experience.helped, text) for text in (_plain(experience.title), _plain(experience.lesson)) if " " in text}
        keys = keys or {(experience.helped, _plain(f"{experience.title} {experience.lesson}"))}
        if teaches(experience) and not keys & seen:
            seen |= keys
            yield experience


def teaches(experience: Experience) -> bool:
    """Whether it says anything: a summarizer's "no optimization found" does not."""
    texts = [text for text in (_plain(experience.title), _plain(experience.lesson)) if text]
    return bool(texts) and not any(_NOTHING.match(text) for text in texts)


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", _SPEEDUP.sub(" ", text.lower())))


# ---------------------------------------------------------------- words


def words_of(task: SearchTask) -> tuple[str, ...]:
    """What the task is about, as words: its operators, its family, the types it reads and writes."""
    names = [part for node in task.workload.nodes for part in node.op.split(".")[1:2]]
    types = sorted({spec.dtype for spec in (*task.workload.inputs, *task.workload.output_specs)})
    text = " ".join([*names, task.family, *(f"{t} {_DTYPE_WORDS.get(t, '')}" for t in types)])
    return tuple(word for word in dict.fromkeys(_tokens(text)) if word not in _STOP_WORDS)


def text_of(experience: Experience) -> tuple[str, str]:
    """(heading, text) of an experience, as far as words are looked for in it."""
    heading = f"{experience.title} {experience.family} {' '.join(experience.change.values())}"
    return heading, f"{experience.lesson[:_INDEXED]} {experience.origin.get('plan', '')[:_INDEXED]}"


def by_words(words: Sequence[str], texts: tuple[tuple[str, str], ...]) -> dict[int, float]:
    """A score above 0 for each of `texts`, by position, that has one of the words in it; more is better. BM25 by SQLite's
    FTS5 where it is compiled in, else the share of the words that occur."""
    if not words or not texts:
        return {}
    return _by_bm25(tuple(words), texts) if has_fts5() else by_overlap(words, texts)


@functools.cache
def has_fts5() -> bool:
    """Whether this Python has SQLite, and that full text search."""
    try:
        import sqlite3
    except ImportError:
        return False
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE probe USING fts5(x)")
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True


# A run asks for every parent of every round, with the same words and the same earlier lessons.
@functools.lru_cache(maxsize=8)
def _by_bm25(words: tuple[str, ...], texts: tuple[tuple[str, str], ...]) -> dict[int, float]:
    import sqlite3

    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE lessons USING fts5(heading, lesson, tokenize='porter unicode61')")
        rows = [(i, *(part.encode(errors="replace").decode() for part in text)) for i, text in enumerate(texts)]
        connection.executemany("INSERT INTO lessons(rowid, heading, lesson) VALUES (?, ?, ?)", rows)
        query = " OR ".join(f'"{word}"' for word in (token for word in words for token in _tokens(word)))
        # bm25() is negative, better is smaller; a title says more about a lesson than one word of its text.
        sql = "SELECT rowid, -bm25(lessons, 2.0, 1.0) AS score FROM lessons WHERE lessons MATCH ? ORDER BY score DESC, rowid"
        return {int(i): max(float(score), 1e-9) for i, score in connection.execute(sql, (query,))} if query else {}
    finally:
        connection.close()


def by_overlap(words: Sequence[str], texts: Sequence[tuple[str, str]]) -> dict[int, float]:
    """The share of the words that occur in each text, best first."""
    wanted = set(_tokens(" ".join(words)))
    shares = {i: len(wanted & set(_tokens(" ".join(text)))) / max(1, len(wanted)) for i, text in enumerate(texts)}
    return {i: share for i, share in sorted(shares.items(), key=lambda item: (-item[1], item[0])) if share > 0}


def _tokens(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())
