"""Which part of a reply is the code, which the JSON, and what is said where there is none."""

from __future__ import annotations

import time
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelopt_compile.llm.extract import Found, Missing, code_block, json_object

WHOLE = '#include <cmath>\nextern "C" void kernel(const float* x, float* y) {\n    y[0] = std::exp(x[0]);\n}\n'
FIXED = WHOLE.replace("exp", "expf")
SNIPPET = "y[0] = 1;\n"


def fenced(code: str, info: str = "cpp", fence: str = "```") -> str:
    return f"{fence}{info}\n{code}{fence}\n"


REPLIES = {
    "alone": fenced(WHOLE),
    "prose around": f"Here it is:\n\n{fenced(WHOLE)}\nIt is faster.",
    "a snippet first": f"The line\n{fenced(SNIPPET)}becomes\n{fenced(WHOLE)}",
    "a snippet after": f"{fenced(WHOLE)}Its heart is\n{fenced(SNIPPET)}",
    "corrected, and shorter": f"{fenced(WHOLE + '// a wrong idea' + chr(10))}Better:\n{fenced(WHOLE)}",
    "a shell command after": f"{fenced(WHOLE)}Build it:\n{fenced('g++ -O3 kernel.cpp && ./kernel' * 9, 'bash')}",
    "tildes": fenced(WHOLE, fence="~~~"),
    "four backticks": fenced(WHOLE, fence="````"),
    "c++": fenced(WHOLE, "C++"),
    "pandoc": fenced(WHOLE, "{.cpp .numberLines}"),
    "words after the language": fenced(WHOLE, 'cpp title="kernel.cpp"'),
    "a space before the language": fenced(WHOLE, " cpp"),
    "CRLF": fenced(WHOLE).replace("\n", "\r\n"),
    "no language": fenced(WHOLE, ""),
    "no language, beside one": f"{fenced('plan ' * 99 + chr(10), '')}{fenced(WHOLE)}",
    "inside Markdown, longer": f"````markdown\n# Kernel\n{fenced(WHOLE)}````\n",
    "inside Markdown, as long": f"```markdown\n# Kernel\n{fenced(WHOLE)}```\nDone.",
    "a fence that was not closed, begun anew": f"```cpp\n{SNIPPET}\nor rather\n{fenced(WHOLE)}",
    "closed twice": f"{fenced(WHOLE)}```\n",
    "after thinking": f"<think>\n{fenced(WHOLE + FIXED)}no</think>{fenced(WHOLE)}",
    "in a list": f"1. The kernel:\n    ```cpp\n{WHOLE}    ```\n",
    "blank lines around": fenced(f"\n\n{WHOLE}\n\n"),
}


@pytest.mark.parametrize("form", REPLIES)
def test_the_whole_kernel_is_found(form: str) -> None:
    """However a model wraps its kernel, it is what comes out."""
    found = code_block(REPLIES[form])
    assert isinstance(found, Found), found
    assert WHOLE == found.text


REASONS = {
    "nothing": ("", "no block of code"),
    "prose": ("I would use a vector loop.", "no block of code"),
    "code without a fence": (WHOLE, "no block of code"),
    "an empty block": ("```cpp\n```\n", "no block of code"),
    "another language": (fenced("import triton\n", "python"), "in a block of python, not of cpp"),
    "cut off": (f"```cpp\n{WHOLE}", "cut off before its closing fence"),
    "cut off after a snippet": (f"{fenced(SNIPPET)}```cpp\n{WHOLE}", "cut off before its closing fence"),
    "cut off at once": ("Here:\n```cpp", "no block of code"),
    "only the long one cut off": (f"```cpp\n{WHOLE * 3}\n{fenced(SNIPPET)}", "cut off before its closing fence"),
    "only thought of": (f"<think>{fenced(WHOLE)}</think>I cannot.", "no block of code"),
}


@pytest.mark.parametrize("case", REASONS)
def test_no_code_has_a_reason(case: str) -> None:
    """What is no whole kernel is a sentence that the model can be told, never half a kernel."""
    text, reason = REASONS[case]
    missing = code_block(text)
    assert isinstance(missing, Missing), missing
    assert reason in missing.reason


def test_other_languages_may_be_wanted() -> None:
    """The wanted fences are the caller's; the first names what is missing."""
    assert Found(text="x = 1\n", language="python") == code_block(fenced("x = 1\n", "python"), ("python", "py"))
    assert "begins with ```python" in str(code_block("no", ("python", "py")))


OBJECTS: dict[str, tuple[str, dict[str, Any]]] = {
    "bare": ('{"a": 1}', {"a": 1}),
    "in a fence": (fenced('{"a": 1}\n', "json"), {"a": 1}),
    "prose around": ('Sure! {"a": {"b": [1, 2]}} Hope this helps {"c": 3}', {"a": {"b": [1, 2]}}),
    "braces in prose": ('For i in {1, 2} and f{x}: {"a": "}{"}', {"a": "}{"}),
    "a line end in a string": ('{"a": "x\ny"}', {"a": "x\ny"}),
    "a broken one before": ('{"a": 1,} then {"a": 2}', {"a": 2}),
    "in a list": ('[{"a": 1}, {"a": 2}]', {"a": 1}),
    "after thinking": ('<think>{"a": 0}</think>{"a": 1}', {"a": 1}),
    "empty": ("{}", {}),
}


@pytest.mark.parametrize("form", OBJECTS)
def test_the_first_object_is_found(form: str) -> None:
    """Prose, fences and braces that are no JSON stand in nobody's way."""
    text, expected = OBJECTS[form]
    assert expected == json_object(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no JSON object"),
        ("[1, 2]", "no JSON object"),
        ('{"plans": [{"a": 1}, {"b":', "cut off"),
        ('{"a": 1,}', "not valid"),
        ('{"a": NaN}', "not valid"),
        ("{'a': __import__('os')}", "no JSON object"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "not valid"),
        ("{" * 100_000, "no JSON object"),
    ],
)
def test_no_object_has_a_reason(text: str, reason: str) -> None:
    """An object that was cut off is none, and neither is the whole one inside it."""
    missing = json_object(text)
    assert isinstance(missing, Missing), missing
    assert reason in missing.reason


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(["```", "~~~", "cpp", "\n", "\r\n", "x;", "{", "}", '"', "\\", "markdown", " ", "</think>"]), max_size=40
    )
)
def test_any_text_is_an_answer_or_a_reason(pieces: list[str]) -> None:
    """Nothing raises, and what is found has no fence of its own in it."""
    text = "".join(pieces)
    found = code_block(text)
    assert isinstance(found, Missing) or found.text.strip()
    assert isinstance(json_object(text), dict | Missing)


def test_indentation_is_kept() -> None:
    """Code comes out as it stood."""
    code = dedent("""\
        int f() {
            return 1;
        }
    """)
    found = code_block(fenced(code))
    assert isinstance(found, Found)
    assert code.rstrip(" ") == found.text


BOMBS = {
    "Markdown in Markdown": "\n".join(
        ["`" * n + "markdown" for n in range(500, 2, -1)] + ["x"] + ["`" * n for n in range(3, 501)]
    ),
    "a fence of spaces": "```" + " " * 100_000 + "`",
    "a fence of tildes": "~" * 100_000 + "`",
    "a fence of backticks": "`" * 100_000 + " `",
    "objects in objects": '{"a":' * 100_000,
    "lists in an object": '{"a":' + "[" * 100_000,
    "braces": "{" * 200_000,
    "fences": "```cpp\n" * 50_000,
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_no_reply_ends_or_holds_up_a_search(bomb: str) -> None:
    """However deep it nests, however often its reader could try again."""
    started = time.process_time()
    assert isinstance(code_block(BOMBS[bomb]), Found | Missing)
    assert isinstance(json_object(BOMBS[bomb]), dict | Missing)
    assert time.process_time() - started < 2
