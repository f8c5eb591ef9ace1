"""A real browser without a window: Debian's chromium, driven by selenium."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
MISSING = "chromium and chromedriver are not installed (Debian: apt-get install chromium chromium-driver)"

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

OVERLAPS = """
const boxes = [];
const kinds = 'h1, h2, h3, p, td, th, dt, dd, figcaption, label, .legend span, svg text';
for (const one of document.querySelectorAll(kinds)) {
  const box = one.getBoundingClientRect();
  const style = getComputedStyle(one);
  const filled = one.textContent.trim() && one.checkVisibility() && box.width > 0 && box.height > 0;
  const shown = filled && style.visibility !== 'hidden';
  if (shown && style.opacity !== '0' && style.display !== 'none') boxes.push({one, box});
}
const found = [];
for (let i = 0; i < boxes.length; i++) for (let j = i + 1; j < boxes.length; j++) {
  const a = boxes[i], b = boxes[j];
  if (a.one.contains(b.one) || b.one.contains(a.one)) continue;
  const across = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left);
  const down = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top);
  if (across > 2 && down > 2) found.push(a.one.textContent.trim() + ' | ' + b.one.textContent.trim());
}
return found;
"""
"""Pairs of texts that lie on each other."""

CUT = """
return Array.from(document.querySelectorAll('.chart')).flatMap(chart => {
  const edge = chart.getBoundingClientRect();
  return Array.from(chart.querySelectorAll('svg text')).filter(one => {
    const box = one.getBoundingClientRect();
    return box.width > 0 && (box.left < edge.left - 1 || box.right > edge.right + 1
      || box.top < edge.top - 1 || box.bottom > edge.bottom + 1);
  }).map(one => one.textContent);
});
"""
"""Texts of charts that go on beyond their chart."""


@contextmanager
def opened(page: Path, folder: Path, width: int) -> Iterator[Any]:
    """The page in a browser of this width; skips the test where there is none."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip(MISSING)
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={folder / f'profile-{width}'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
    try:
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        driver.get(page.absolute().as_uri())
        yield driver
    finally:
        driver.quit()


def until(driver: Any, condition: str) -> None:
    """Wait until a condition of the page holds, and all that it drew has settled."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(driver, 60).until(lambda one: one.execute_script(f"return {condition}"))
    driver.execute_async_script(
        "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
    )


def requested(driver: Any) -> list[str]:
    """The addresses that the page asked for, from outside of itself."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = [one["params"] for one in messages if one["method"] == "Network.requestWillBeSent"]
    ours = [one["request"]["url"] for one in sent if one["documentURL"].startswith("file:")]
    assert ours  # at least the page itself; an empty tab of the browser's own asks for more
    return [address for address in ours if not address.startswith(("file:", "data:", "blob:"))]


def picture(driver: Any) -> bytes:
    """The whole page, from top to bottom, as PNG."""
    height = driver.execute_script("return document.documentElement.scrollHeight")
    clip = {"x": 0, "y": 0, "width": driver.execute_script("return innerWidth"), "height": height, "scale": 1}
    shot = {"captureBeyondViewport": True, "clip": clip}
    return base64.b64decode(driver.execute_cdp_cmd("Page.captureScreenshot", shot)["data"])
