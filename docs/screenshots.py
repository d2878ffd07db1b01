"""Make the two pictures of a report that the README shows: docs/report-light.png and docs/report-dark.png.

pip install -e '.[all,dev]' and Debian's packages chromium and chromium-driver; then:  python docs/screenshots.py
"""

import base64
import io
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from selenium import webdriver

import bertflow.data
from bertflow import write_report
from bertflow.data import sample_sentences
from bertflow.evaluation import load_pairs_file
from bertflow.report import Origin

HERE = Path(__file__).parent
WIDTH, HEIGHT = 1280, 1560  # the verdict and the map of sentences
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
FLAGS += ("--disable-component-update", "--disable-sync", "--disable-quic", "--hide-scrollbars")


def make_report(path: Path) -> str:
    """Write the report of the shipped sentences and pairs; return its address."""
    pairs = load_pairs_file(Path(bertflow.data.__file__).parent / "pairs.tsv")
    origin = Origin(title="The sentences that ship with bertflow")
    write_report(sample_sentences(), path, pairs=pairs, origin=origin)
    return path.as_uri()


def browser(profile: Path) -> webdriver.Chrome:
    """Start a headless Chromium."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={WIDTH},{HEIGHT}"):
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver") or ""))


def photograph(driver: webdriver.Chrome, address: str, theme: str) -> Image.Image:
    """Return the top of the page as a system with that theme shows it, in 256 colours: a third of the bytes."""
    features = [{"name": "prefers-color-scheme", "value": theme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    driver.get(address)
    driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    clip = {"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT, "scale": 1}
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
    return Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB").quantize(256, dither=Image.Dither.NONE)


def main() -> None:
    """Make both pictures."""
    with TemporaryDirectory() as folder:
        address = make_report(Path(folder) / "report.html")
        driver = browser(Path(folder) / "profile")
        try:
            for theme in ("light", "dark"):
                photograph(driver, address, theme).save(HERE / f"report-{theme}.png", optimize=True)
        finally:
            driver.quit()


if __name__ == "__main__":
    main()
