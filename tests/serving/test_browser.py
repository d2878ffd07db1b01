"""The service's page in a real browser: it asks nobody else, runs nothing of the texts, and can be used by keyboard."""

import json
import shutil
import time

import pytest

from bertflow.serving import Keys, create_app
from tests.serving.conftest import LINES, Lines, Words, running

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
TEXTS = [f"{a} {b}" for a in "abcdefghij" for b in "klmnopqrst"]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A headless Chromium that writes down what it loads and what goes wrong."""
    pytest.importorskip("selenium", reason="needs pip install selenium, which is among bertflow's dev tools")
    from selenium import webdriver

    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("no browser here: install chromium and chromium-driver (Debian's names)")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}", "--window-size=1200,1400"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    yield made
    made.quit()


@pytest.fixture(scope="module")
def place():
    model = Words(dim=32)
    with running(
        create_app({"words": model, "loose": Words()}, {"lines": Lines(model, LINES)}, texts=TEXTS)
    ) as address:
        yield address


@pytest.fixture
def opened(browser, place):
    """The page, loaded and told what there is."""
    browser.get_log("performance"), browser.get_log("browser")
    prefer(browser, "light")
    browser.get(place)
    until(lambda: "dimensions" in browser.find_element("id", "offer").text)
    yield browser
    browser.execute_script("localStorage.clear()")
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def until(found, seconds=8):
    """Wait for a condition and return its value."""
    end = time.monotonic() + seconds
    while not (value := found()) and time.monotonic() < end:
        time.sleep(0.05)
    assert value
    return value


def prefer(browser, theme):
    """Wish for a theme, and for no movement: a button that still scrolls cannot be pressed."""
    wishes = {"prefers-color-scheme": theme, "prefers-reduced-motion": "reduce"}
    features = [{"name": name, "value": value} for name, value in wishes.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def write(browser, **texts):
    """Paste texts into fields: the driver cannot type every character."""
    for name, text in texts.items():
        browser.execute_script("document.getElementById(arguments[0]).value = arguments[1]", name, text)


def press(browser, form):
    browser.find_element("css selector", f"#{form}-form button").click()
    return until(lambda: browser.find_element("id", f"{form}-answer").text)


def use_everything(browser):
    write(
        browser,
        query="img src",
        text="the red cat",
        other="a cat runs",
        list="one text\nanother\none text\n<b>bold</b>",
    )
    for form in ("search", "compare", "duplicates"):
        press(browser, form)


def test_it_asks_only_its_service_and_logs_no_error(opened, place):
    use_everything(opened)
    events = [json.loads(entry["message"])["message"] for entry in opened.get_log("performance")]
    requests = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
    asked = {one["request"]["url"] for one in requests if one["documentURL"].startswith(place)}
    assert {f"{place}/", f"{place}/page.css", f"{place}/page.js", f"{place}/v1/search"} <= asked
    assert not [url for url in asked if not url.startswith((place, "data:"))]
    assert opened.get_log("browser") == []


def test_search_shows_texts_and_runs_none(opened):
    write(opened, query="<img src=x onerror='window.hacked=1'>")
    press(opened, "search")
    hits = opened.find_elements("css selector", "#search-answer li")
    assert len(hits) == len(LINES)
    assert LINES[3] in hits[0].text
    assert opened.execute_script("return window.hacked") is None
    assert opened.execute_script("return document.images.length") == 0


def test_compared_texts_are_explained(opened):
    write(opened, text="the red 😀 cat sleeps", other="my cat runs")
    shown = press(opened, "compare")
    assert "pairs of unrelated texts is as near" in shown
    assert "“cat”" in shown
    marks = opened.find_elements("css selector", "#compare-answer mark")
    assert [mark.text for mark in marks] == ["the", "red", "cat", "sleeps", "my", "cat", "runs"]
    assert opened.find_elements("css selector", ".words")[0].text == "the red 😀 cat sleeps"


def test_duplicates_are_grouped_and_a_short_list_is_told_so(opened):
    write(opened, list="one text\nanother\n\n  one text ")
    assert "3 texts, 1 group of duplicates; 2 texts are left" in press(opened, "duplicates")
    lines = opened.find_elements("css selector", ".group li")
    assert [line.text.split(maxsplit=1) for line in lines] == [["1", "one text"], ["4", "one text"]]
    write(opened, list="alone")
    opened.find_element("css selector", "#duplicates-form button").click()
    until(lambda: "duplicates need two or more" in opened.find_element("id", "duplicates-answer").text)


def test_a_chosen_cosine_is_used(opened):
    opened.find_element("css selector", "#cut option[value='']").click()
    assert opened.find_element("id", "threshold").is_displayed()
    write(opened, list="one text\nanother")
    assert "0.90, as you chose" in press(opened, "duplicates")


def test_all_can_be_done_by_keyboard(opened):
    from selenium.webdriver import ActionChains, Keys

    def key(*keys):
        ActionChains(opened).send_keys(*keys).perform()

    opened.execute_script("document.getElementById('query').focus()")
    key("bread", Keys.ENTER)
    assert "bread" in until(lambda: opened.find_element("id", "search-answer").text)
    seen = []
    for _ in range(14):
        key(Keys.TAB)
        seen.append(opened.execute_script("return document.activeElement.id || document.activeElement.textContent"))
    order = ["index", "Search", "text", "other", "Compare", "list", "cut", "Find duplicates"]
    assert [one for one in seen if one in order] == order
    assert opened.execute_script(
        "return [...document.querySelectorAll('input, textarea, select')].every((one) => one.labels.length === 1)"
    )


@pytest.mark.parametrize(("system", "other"), [("light", "dark"), ("dark", "light")])
def test_both_themes_follow_the_system_and_the_button(opened, system, other):
    theme = "return document.documentElement.dataset.theme"
    ink = "return getComputedStyle(document.body).color"
    prefer(opened, system)
    until(lambda: opened.execute_script(theme) == system)
    first = opened.execute_script(ink)
    opened.find_element("id", "theme").click()
    assert opened.execute_script(theme) == other
    assert opened.execute_script(ink) != first


def test_360_pixels_need_no_sideways_scrolling(opened):
    use_everything(opened)
    size = {"width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    until(lambda: opened.execute_script("return innerWidth") == 360)
    assert opened.execute_script("return document.documentElement.scrollWidth") <= 360


def test_a_service_with_keys_asks_for_one(browser):
    with running(create_app({"words": Words()}, keys=Keys(["a-secret-key"]))) as address:
        browser.get(address)
        until(lambda: browser.find_element("id", "key-form").is_displayed())
        write(browser, key="a-wrong-key")
        browser.find_element("css selector", "#key-form button").click()
        write(browser, key="a-secret-key")
        browser.find_element("css selector", "#key-form button").click()
        until(lambda: "words: 8 dimensions" in browser.find_element("id", "offer").text)
        assert not browser.find_element("id", "key-form").is_displayed()
        assert browser.find_element("id", "no-index").is_displayed()
        write(browser, text="a", other="b")
        assert "cosine" in press(browser, "compare")
