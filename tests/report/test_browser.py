"""The page in a real browser: it loads from disk, asks nobody, runs nothing of the text, and can be used."""

import json
import time

import pytest

CHART = "echarts.getInstanceByDom(document.getElementById(arguments[0]))"


@pytest.fixture(scope="module")
def address(page, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page, encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def opened(browser, address):
    """The page, freshly loaded, with nothing logged before."""
    browser.get_log("performance"), browser.get_log("browser")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    browser.get(address)
    yield browser
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def until(found, seconds=8):
    """Wait for a condition and return its value."""
    end = time.monotonic() + seconds
    while not (value := found()) and time.monotonic() < end:
        time.sleep(0.05)
    assert value
    return value


def prefer(browser, theme):
    features = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def painted(browser, chart):
    """How many different colours a chart shows."""
    return browser.execute_script(
        """const canvas = document.querySelector(`#${arguments[0]} canvas`);
        const pixels = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
        return new Set(pixels).size""",
        chart,
    )


def point_at(browser, chart, i):
    """Move the mouse to the i-th point of a map."""
    from selenium.webdriver import ActionChains

    element = browser.find_element("id", chart)
    browser.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
    side = chart.rpartition("-")[2]
    x, y = browser.execute_script(
        f"""const data = JSON.parse(document.getElementById("data").textContent).sentences;
        const [xs, ys] = data[arguments[2]];
        const [x, y] = {CHART}.convertToPixel("grid", [xs[arguments[1]], ys[arguments[1]]]);
        const box = document.getElementById(arguments[0]);
        return [Math.round(x - box.clientWidth / 2), Math.round(y - box.clientHeight / 2)]""",
        chart, i, side,
    )  # fmt: skip
    ActionChains(browser).move_to_element_with_offset(element, x + 3, y).move_by_offset(-3, 0).perform()


def tip_at(browser, chart, i, text):
    """Point at the i-th point of a map, again until the browser has taken notice; return its tip, which shows ``text``."""

    def tip():
        point_at(browser, chart, i)
        return [tip.text for tip in browser.find_elements("css selector", f"#{chart} .tip") if text in tip.text]

    return until(tip)[0]


def labels(browser):
    return browser.execute_script("return JSON.parse(document.getElementById('data').textContent).sentences.labels")


def lone_point(browser, side):
    """The point that lies furthest from its neighbours, and its text."""
    i, text = browser.execute_script(
        """const data = JSON.parse(document.getElementById("data").textContent).sentences, [xs, ys] = data[arguments[0]];
        const gap = (i) => Math.min(...xs.map((x, j) => j === i ? Infinity : Math.hypot(x - xs[i], ys[j] - ys[i])));
        const gaps = xs.map((_, i) => gap(i)), best = gaps.indexOf(Math.max(...gaps));
        return [best, data.labels[best]]""",
        side,
    )
    return i, text


def test_loads_without_errors_and_asks_nobody(opened):
    until(lambda: painted(opened, "spectrum-both") > 3)
    events = [json.loads(entry["message"])["message"] for entry in opened.get_log("performance")]
    requests = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
    # the browser's own empty tab, which was there before, also asks for things
    asked = [one["request"]["url"] for one in requests if one["documentURL"].startswith("file://")]
    assert asked, "the page itself is among the requests"
    assert not [url for url in asked if not url.startswith(("file://", "data:"))]
    assert opened.get_log("browser") == []


def test_every_chart_is_painted(opened):
    charts = [element.get_attribute("id") for element in opened.find_elements("css selector", ".chart")]
    assert len(charts) == 9
    for chart in charts:
        until(lambda chart=chart: painted(opened, chart) > 10)


def test_what_the_text_holds_is_shown_and_not_run(opened, evil):
    box = opened.find_element("id", "sentences-search")
    box.send_keys("<script>")
    items = until(lambda: opened.find_elements("css selector", "#sentences-matches li"))
    assert {item.text for item in items} == {evil[0], evil[2]}
    for text in evil[:2]:
        tip_at(opened, "sentences-after", labels(opened).index(text), text)
    assert opened.execute_script("return window.hacked") is None
    assert opened.execute_script("return document.images.length") == 0
    assert opened.find_element("tag name", "h1").text == "A <b>corpus</b>"


@pytest.mark.parametrize("side", ["before", "after"])
def test_pointing_at_a_sentence_shows_it_and_marks_it_in_both_maps(opened, side):
    i, text = lone_point(opened, side)
    assert "density" in tip_at(opened, f"sentences-{side}", i, text)
    assert len(until(lambda: opened.find_elements("css selector", ".ring"))) == 2


def test_search_highlights_and_counts(opened):
    matches = f"return {CHART}.getOption().series.find((one) => one.id === 'matches').data.length"
    box = opened.find_element("id", "sentences-search")
    box.send_keys("CAT SAT")
    shown = labels(opened)
    expected = sum("cat sat" in label for label in shown)
    assert expected
    for side in ("before", "after"):
        until(lambda side=side: opened.execute_script(matches, f"sentences-{side}") == expected)
    assert opened.find_element("id", "sentences-count").text == f"{expected} of {len(shown)} match"
    box.clear()
    box.send_keys(" ")
    until(lambda: opened.execute_script(matches, "sentences-before") == 0)


def test_zoom_by_keyboard(opened):
    from selenium.webdriver import Keys

    width = f"const [one] = {CHART}.getOption().dataZoom; return one.end - one.start"
    opened.find_element("css selector", '[data-chart="sentences-after"][data-zoom="in"]').send_keys(Keys.ENTER)
    assert opened.execute_script(width, "sentences-after") == pytest.approx(60)
    assert opened.execute_script(width, "sentences-before") == pytest.approx(100)
    opened.find_element("css selector", '[data-chart="sentences-after"][data-zoom="reset"]').send_keys(Keys.SPACE)
    assert opened.execute_script(width, "sentences-after") == pytest.approx(100)


@pytest.mark.parametrize(("system", "other"), [("light", "dark"), ("dark", "light")])
def test_both_themes_follow_the_system_and_the_button(opened, system, other):
    ink = "return getComputedStyle(document.body).color"
    prefer(opened, system)
    until(lambda: opened.execute_script("return document.documentElement.dataset.theme") == system)
    first = opened.execute_script(ink)
    opened.find_element("id", "theme").click()
    assert opened.execute_script("return document.documentElement.dataset.theme") == other
    assert opened.execute_script(ink) != first
    until(lambda: painted(opened, "sentences-before") > 10)
    opened.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    assert opened.execute_script("return document.documentElement.dataset.theme") == "light"
    opened.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert opened.execute_script("return document.documentElement.dataset.theme") == other
    assert opened.get_log("browser") == []


@pytest.mark.parametrize("width", [320, 768])
def test_narrow_screens_need_no_sideways_scrolling(opened, width):
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    opened.execute_script("for (const part of document.querySelectorAll('details')) part.open = true")
    until(lambda: opened.execute_script("return innerWidth") == width)
    time.sleep(0.3)  # the charts follow
    assert opened.execute_script("return document.documentElement.scrollWidth") <= width


def test_twenty_thousand_sentences_are_drawn_and_found(browser, large_page, tmp_path):
    path = tmp_path / "large.html"
    path.write_text(large_page, encoding="utf-8")
    browser.get(path.as_uri())
    until(lambda: painted(browser, "sentences-after") > 10)
    browser.find_element("id", "sentences-search").send_keys("19999 ")
    until(lambda: browser.find_element("id", "sentences-count").text == "1 of 20,000 match")
    assert browser.get_log("browser") == []
