"""The page in a real browser: it fits a phone and a desktop, asks for nothing and runs nothing."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from accelopt_cache.kernel_store import Store
from accelopt_compile.report.model import report_of
from accelopt_compile.report.reading import read_run
from accelopt_compile.report.render import render
from tests.report.runs import HOSTILE, large, searched

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium on PATH (Debian: apt-get install chromium)")

# The page has no scripts, so another page looks at it from outside. Whatever is closed is opened first: it must fit too.
FRAME = """<!DOCTYPE html><body style="margin:0"><iframe src="page.html" style="width:WIDTHpx;height:900px;border:0"></iframe>
<pre id="seen"></pre><script>
document.querySelector("iframe").addEventListener("load", event => {
  const view = event.target.contentWindow, page = view.document;
  const said = () => ({ width: page.documentElement.scrollWidth, body: page.body.scrollWidth });
  const closed = said();
  for (const one of page.querySelectorAll("details")) one.open = true;
  const letters = [...page.querySelectorAll("svg text")].map(text => text.getBoundingClientRect().height);
  document.querySelector("#seen").textContent = JSON.stringify({ closed, open: said(), smallest: Math.min(...letters),
    requests: view.performance.getEntriesByType("resource").length, scripts: page.scripts.length, images: page.images.length,
    steps: page.querySelectorAll("ul.tree li").length, title: page.title });
});
</script>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a search of some 500 kernels by a hostile model."""
    directory = tmp_path_factory.mktemp("browser")
    run = searched(Store.open(directory / "store"), large(says=f"{HOSTILE} {'long' * 60}"))
    (directory / "page.html").write_text(render(report_of(read_run(run))))
    return directory / "page.html"


def browsed(*arguments: str, profile: Path) -> str:
    """What headless Chromium prints. Its own error output is for nobody."""
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_its_window(page: Path, tmp_path: Path, width: int) -> None:
    """At a phone's and a desktop's width nothing is wider than the window, with everything closed and with everything
    open; letters of charts stay readable; nothing is requested, no script and no image is there."""
    frame = page.with_name(f"frame{width}.html")
    frame.write_text(FRAME.replace("WIDTH", str(width)))
    dom = browsed("--allow-file-access-from-files", "--virtual-time-budget=8000", "--dump-dom", frame.as_uri(), profile=tmp_path)
    (told,) = re.findall(r'<pre id="seen">(.*?)</pre>', dom, re.S)
    seen = json.loads(told.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    fits = {"width": width, "body": width}
    assert (fits, fits) == (seen["closed"], seen["open"])
    assert (0, 0, 0) == (seen["requests"], seen["scripts"], seen["images"])
    assert seen["smallest"] > 11
    assert seen["steps"] > 100


@pytest.mark.parametrize("width", [390, 1280])
def test_a_screenshot_is_as_wide_as_its_window(page: Path, tmp_path: Path, width: int) -> None:
    """The page is drawn, and not as an empty sheet: such a picture is packed into a few kilobytes."""
    picture = tmp_path / "page.png"
    browsed(f"--window-size={width},1400", f"--screenshot={picture}", page.as_uri(), profile=tmp_path / "profile")
    data = picture.read_bytes()
    assert (width, 1400) == struct.unpack(">II", data[16:24])
    assert len(data) > 40_000
