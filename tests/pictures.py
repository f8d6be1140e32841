"""Makes the pictures of README and docs/certified.md: `make pictures`, a few minutes on two cores.

Runs docs/examples/grid.yaml and path.yaml in a home of their own, writes the report and photographs parts of it.
"""

from __future__ import annotations

import base64
import io
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

from tests.conftest import ROOT
from tests.dashboards.chromium import chromium

WIDTH = 1180
# Picture: the heading it begins with, and the one that it ends before. The first begins at the top of the page.
PICTURES = {
    "report-summary": ("path", "Score of every method"),
    "report-path": ("Score over the whole path of gamma", "Projection vectors over gamma"),
    "report-charts": ("Non-convex regularizers at the convex solution", "Convergence and restarts"),
}


def heading_at(browser: Any, text: str) -> float:
    """Where a heading stands on the page, in pixels from its top."""
    script = (
        "const found = [...document.querySelectorAll('h1, h2, h3, h4')].find(h => h.innerText.trim() === arguments[0]);"
        "return found ? found.getBoundingClientRect().top + window.scrollY : null"
    )
    found = browser.execute_script(script, text)
    assert found is not None, f"the report has no heading {text!r}"
    return float(found)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="sweep-pictures-") as folder:
        home, report = Path(folder, "home"), Path(folder, "report.html")
        sweep = [sys.executable, "-m", "sweep"]
        for name in ("grid", "path"):
            subprocess.run([*sweep, "run", str(ROOT / f"docs/examples/{name}.yaml"), "--home", str(home)], check=True)
        subprocess.run([*sweep, "report", "path", "--home", str(home), "--output", str(report)], check=True)
        browser = chromium(Path(folder, "profile"))
        try:
            browser.get(report.as_uri())
            for height in (900, browser.execute_script("return document.documentElement.scrollHeight")):
                size = {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
                browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            for name, (first, last) in PICTURES.items():
                top, bottom = heading_at(browser, first) - 16, heading_at(browser, last) - 8
                clip = {"x": 0, "y": max(0.0, top), "width": WIDTH, "height": bottom - max(0.0, top), "scale": 1}
                shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png", "clip": clip})
                picture = Image.open(io.BytesIO(base64.b64decode(shot["data"])))
                picture.convert("RGB").quantize(64).save(ROOT / f"docs/images/{name}.png", optimize=True)
        finally:
            browser.quit()


if __name__ == "__main__":
    main()
