"""The page about a fit: whole in itself, safe whatever its data say, and alive in a real browser."""

import json
import re
import shutil

import numpy as np
import pytest

import thiele as th

DAYS = np.datetime64("2024-01-01") + np.arange(90)
RNG = np.random.default_rng(0)
Y = np.sin(np.arange(90) / 9.0) + 0.1 * RNG.standard_normal(90)
Y[20:24] = np.nan
Y[50] = 4.0
TITLE = "Power </script><b>& heat"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    kernel = th.Matern32(1.0, "9 days") + th.Constant(0.5)
    fit = th.GP(kernel, th.Gaussian(0.02), mean=0.0).fit(DAYS, Y, max_steps=2)
    return fit.report(tmp_path_factory.mktemp("report") / "report.html", horizon="2 weeks", title=TITLE)


def contents(page):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    return json.loads(found[1])


def test_the_page_holds_everything_and_loads_nothing(page):
    text = page.read_text()
    addresses = set(re.findall(r"https?://[^\s\"'<]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of a format, which nothing fetches
    assert not re.search(r"<(link|img|iframe|script)[^>]*(src|href)=", text)
    assert "@" not in re.sub(r"@media", "", text.split("<script")[0])
    found = contents(page)
    assert len(found["forecast"]["t"]) == 14
    assert found["forecast"]["t"][0] == 1_711_843_200_000  # 31 March 2024
    assert len(found["points"]["t"]) == 86
    assert [part["name"] for part in found["components"]][1] == "Constant"
    assert found["components"][0]["name"].startswith("Matern32, lengthscale ")
    assert len(found["anomalies"]["t"]) == 1
    assert any("learning stopped early" in text for text in found["warnings"])


def test_no_title_and_no_text_can_become_markup(page):
    text = page.read_text()
    assert "<b>" not in text
    assert text.count("</script>") == 2
    assert "Power &lt;/script&gt;&lt;b&gt;&amp; heat" in text


@pytest.mark.slow
def test_numbers_and_many_points_have_a_page_too(tmp_path):
    t = np.arange(5000.0)
    fit = th.GP(th.Matern32(1.0, 50.0), th.Gaussian(0.1), mean=0.0).condition(t, np.sin(t / 50.0))
    found = contents(fit.report(tmp_path / "a.html"))
    assert not found["dated"]
    assert len(found["points"]["t"]) <= 4000
    assert found["trace"] is None
    assert found["components"] == []


CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright to drive a browser")
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt install chromium")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def view(browser, page):
    context = browser.new_context(viewport={"width": 1000, "height": 900}, offline=True, accept_downloads=True)
    view = context.new_page()
    problems = []
    view.on("pageerror", lambda error: problems.append(str(error)))
    view.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    view.on(
        "request",
        lambda request: problems.append(request.url) if not request.url.startswith(("file:", "blob:")) else None,
    )
    view.goto(page.as_uri())
    yield view
    context.close()
    assert problems == []


def ticks(view):
    return view.locator("#chart svg text").all_text_contents()


def test_the_picture_is_drawn_and_the_title_is_text(view):
    assert view.locator("h1").inner_text() == TITLE
    assert view.locator("#chart circle").count() == 86
    assert view.locator("#chart polyline").count() == 1
    dates = [text for text in ticks(view) if text.count("-") and not text.startswith("-")]
    assert dates[:3] == ["2024-01-08", "01-22", "02-05"]  # Mondays, the first with its year
    assert view.locator("#forecast tbody tr").count() == 14
    assert view.locator("#pit rect").count() == 10
    assert "learning stopped early" in view.locator("#warnings").inner_text()


def test_hovering_tells_the_values_under_the_pointer(view):
    assert view.locator("#chart .tip").is_hidden()
    box = view.locator("#chart svg").bounding_box()
    view.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.5 * box["height"])
    said = view.locator("#chart .tip").inner_text()
    assert re.match(r"2024-0\d-\d\d", said)
    assert "mean" in said
    assert "95 % of observations" in said
    view.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + box["height"] + 300)
    assert view.locator("#chart .tip").is_hidden()


def test_a_click_on_a_box_hides_and_shows_a_part(view):
    box = view.get_by_label("observations", exact=True)
    box.click()
    assert view.locator("#chart circle").count() == 0
    box.click()
    assert view.locator("#chart circle").count() == 86
    view.get_by_label("forecast", exact=True).click()
    assert view.locator("#chart .shade").count() == 0


def test_dragging_zooms_in_and_a_double_click_shows_all_again(view):
    whole = ticks(view)
    box = view.locator("#chart svg").bounding_box()
    middle = box["y"] + 0.5 * box["height"]
    view.mouse.move(box["x"] + 0.3 * box["width"], middle)
    view.mouse.down()
    view.mouse.move(box["x"] + 0.5 * box["width"], middle, steps=5)
    view.mouse.up()
    assert ticks(view) != whole
    assert 5 < view.locator("#chart circle").count() < 40
    view.locator("#chart svg").dblclick()
    assert ticks(view) == whole


def test_a_click_on_an_anomaly_shows_it(view):
    assert view.locator("#chart .mark").count() == 0
    view.locator("#anomalies tbody tr").first.click()
    assert view.locator("#chart .mark").count() == 1
    assert view.locator("#chart circle").count() < 86
    view.locator("#chart svg").press("Escape")
    assert view.locator("#chart .mark").count() == 0


def test_the_forecast_can_be_saved(view, tmp_path):
    with view.expect_download() as download:
        view.get_by_role("button", name="Save as CSV").click()
    download.value.save_as(tmp_path / "forecast.csv")
    lines = (tmp_path / "forecast.csv").read_text().splitlines()
    assert lines[0] == "time,mean,lower,upper"
    assert lines[1].startswith("2024-03-31T00:00:00,")
    assert len(lines) == 15
