"""The page in a browser: Debian's Chromium, driven by Playwright, without a network.

Where the browser, Playwright or axe-core are missing the tests skip, and say so.
"""

import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.image import imread

from circuits.report.attention import packed
from circuits.report.figures import PAGE, drawn
from circuits.report.inspected import inspected
from circuits.report.page import Paper, write_page
from circuits.report.verdicts import judged
from tests.circuits.report.pages import HOSTILE, inspection, verdict_file

playwright = pytest.importorskip(
    "playwright.sync_api", reason="no playwright: pip install -e '.[browser]'"
)

CHROMIUM = shutil.which("chromium")

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no browser: apt-get install chromium"
)

DESKTOP, PHONE = 1280, 390


def attention() -> dict[str, Any]:
    """Two steps, two layers, two heads, three tokens; each head looks elsewhere."""
    weights = torch.zeros(2, 2, 2, 3, 3)
    for place, head in enumerate(weights.view(8, 3, 3)):
        head[:, place % 3] = 1.0
    names = ["7 subject", "8 <b>relation</b>", "9 end"]
    axes = {"step": [0, 600], "layer": [0, 1], "head": [0, 1]}
    view = {"arm": "gpt", "seed": 0, "query": names, "key": names, **axes}
    return {**view, "weights": packed(weights)}


def papers() -> list[Paper]:
    with rc_context(PAGE):
        figure = Figure((4, 3))
        figure.subplots().plot([0.0, 1.0], [2.0, 3.0], label="loss")
    shown = (drawn("loss", figure, "Figure 2: the loss.", "preset quick; seeds 301"),)
    one = Paper(judged(verdict_file(), "it"), "A paper", "Its mechanism.", shown)
    views = (attention(), {**attention(), "arm": "other"})
    return [
        replace(one, attention=views),
        Paper(judged(verdict_file(**HOSTILE), "it"), "<b>Hostile</b>"),
    ]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    prompt = inspected(inspection(prompt="<img src=x onerror=alert(1)>"))
    return write_page(tmp_path_factory.mktemp("page") / "p.html", papers(), [prompt])


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as library:
        found = library.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield found
        found.close()


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core, from npm or from where AXE_CORE says it is."""
    if given := os.environ.get("AXE_CORE"):
        return Path(given).read_text("utf-8")
    npm, folder = shutil.which("npm"), tmp_path_factory.mktemp("axe")
    if npm is None:
        pytest.skip("no npm to get axe-core by")
    got = subprocess.run([npm, "pack", "axe-core@4"], cwd=folder, capture_output=True)
    packages = list(folder.glob("*.tgz"))
    if got.returncode or not packages:
        pytest.skip("npm cannot get axe-core here")
    with tarfile.open(packages[0]) as archive:
        member = archive.extractfile("package/axe.min.js")
        assert member is not None
        return member.read().decode()


class Seen:
    """A page, and what it did that it should not."""

    def __init__(self, browser: Any, file: Path, width: int, scheme: str) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            accept_downloads=True,
            permissions=["clipboard-read", "clipboard-write"],
            bypass_csp=False,
        )
        self.page = self.context.new_page()
        self.faults: list[str] = []
        self.page.on("console", lambda m: self.faults.append(f"{m.type}: {m.text}"))
        self.page.on("pageerror", lambda e: self.faults.append(str(e)))
        self.page.on("dialog", lambda d: (self.faults.append(d.message), d.dismiss()))
        self.page.on("request", lambda r: self._asked(r.url))
        self.page.goto(file.as_uri())

    def _asked(self, url: str) -> None:
        if not url.startswith(("data:", "blob:")) and not url.endswith("/p.html"):
            self.faults.append(f"request: {url}")


@pytest.fixture(
    params=[(DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light"), (PHONE, "dark")],
    ids=lambda p: f"{p[0]}-{p[1]}",
)
def everywhere(
    request: pytest.FixtureRequest, browser: Any, file: Path
) -> Iterator[Seen]:
    seen = Seen(browser, file, *request.param)
    yield seen
    seen.context.close()
    assert seen.faults == []


@pytest.fixture
def page(browser: Any, file: Path) -> Iterator[Any]:
    seen = Seen(browser, file, DESKTOP, "light")
    yield seen.page
    seen.context.close()
    assert seen.faults == []


def visible(page: Any) -> list[str]:
    rows = page.locator("#paper-1 .leaf:visible").all()
    return [row.get_attribute("data-id") for row in rows]


def test_everything_opens_and_nothing_is_cut_off(everywhere: Seen) -> None:
    page = everywhere.page
    page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
    page.wait_for_timeout(50)
    widths = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert widths[0] <= widths[1]


def test_axe_finds_no_violation(axe: str, everywhere: Seen) -> None:
    page = everywhere.page
    page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
    # Evaluated by the debugger, so the page's policy stays as strict as it is.
    page.evaluate(axe)
    found = page.evaluate("axe.run(document)")["violations"]
    told = [(v["id"], [n["html"][:200] for n in v["nodes"]][:3]) for v in found]
    assert told == []


def test_hostile_names_are_shown_as_text(page: Any) -> None:
    row = page.locator("#paper-2 .leaf").first
    assert "</script><img src=x" in row.locator(".statement").inner_text()
    assert "{{ 7 * 7 }}" in row.locator(".id").inner_text()
    assert page.locator("#paper-2 h2").inner_text() == "<b>Hostile</b>"
    assert page.locator(".prompt h3").inner_text() == "<img src=x onerror=alert(1)>"
    assert page.locator(".queries button").nth(1).inner_text() == "8 <b>relation</b>"
    assert page.locator("img[src=x]").count() == 0


def test_search_and_filters_narrow_the_rows(page: Any) -> None:
    assert visible(page) == ["toy.success", "toy.depth", "toy.edit"]
    page.keyboard.press("/")
    page.keyboard.type("TOY.EDIT refuted")
    assert visible(page) == ["toy.edit"]
    assert page.locator("#count").inner_text() == "1 of 5 claims"
    page.keyboard.press("Escape")
    page.get_by_role("checkbox", name="confirmed").uncheck()
    assert visible(page) == ["toy.depth", "toy.edit"]
    page.get_by_label("Kind").select_option("causal")
    assert visible(page) == ["toy.edit"]


def test_a_search_opens_what_is_ours(page: Any) -> None:
    page.locator("#search").fill("toy.own")
    assert visible(page) == ["toy.own"]


def test_rows_are_sorted_and_come_home_again(page: Any) -> None:
    sort = page.get_by_label("Sort")
    sort.select_option("verdict")
    assert visible(page) == ["toy.edit", "toy.depth", "toy.success", "toy.own"]
    sort.select_option("weight")
    assert visible(page)[-2:] == ["toy.depth", "toy.own"]
    sort.select_option("order")
    assert visible(page) == ["toy.success", "toy.depth", "toy.edit"]
    assert page.locator("#paper-1 .branch:visible").count() == 2


def test_rows_are_walked_and_opened_with_the_keyboard(page: Any) -> None:
    page.locator("#paper-1 .leaf summary").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    opened = page.locator(".leaf[open]")
    assert opened.get_attribute("data-id") == "toy.depth"
    assert "toy.depth is inconclusive" in opened.locator(".more").inner_text()


def test_the_tree_and_the_causal_list_lead_to_rows(page: Any) -> None:
    page.locator(".strip [data-leaf='toy.depth']").click()
    assert page.locator(".leaf.aim").get_attribute("data-id") == "toy.depth"
    page.locator(".causal a").first.click()
    assert page.locator(".leaf.aim").get_attribute("data-id") == "toy.edit"


def test_a_rows_command_is_copied(page: Any) -> None:
    row = page.locator("#paper-1 .leaf").first
    row.locator("summary").click()
    row.locator(".copy").click()
    page.wait_for_function(
        "document.querySelector('.leaf .copy').textContent !== 'Copy'"
    )
    command = (
        "reasonscope confirm toy --preset quick --seeds 301,302, --only toy.success"
    )
    assert page.evaluate("navigator.clipboard.readText()") == command


@pytest.mark.parametrize(
    ("button", "name", "begins"),
    [
        ("loss as SVG", "toy-loss.svg", "<?xml"),
        (
            "Numbers of loss as CSV",
            "toy-loss.csv",
            "panel,series,x,y,value\n0,loss,0,2",
        ),
        ("Verdicts as CSV", "toy-verdicts.csv", "claim,headline,origin"),
    ],
)
def test_downloads(page: Any, button: str, name: str, begins: str) -> None:
    with page.expect_download() as waiting:
        page.get_by_role("button", name=button).first.click()
    assert waiting.value.suggested_filename == name
    assert Path(waiting.value.path()).read_text("utf-8").startswith(begins)


def test_the_attention_view_reacts(page: Any) -> None:
    view = page.locator(".attention")
    readout = view.locator(".readout")
    # The last step, the first layer and head: the fifth of the eight patterns.
    assert readout.inner_text() == "9 end looks hardest at 8 <b>relation</b> (1.00)."
    view.locator(".queries button").first.hover()
    assert readout.inner_text().startswith("7 subject looks hardest at 8")
    view.locator("[data-axis=head]").focus()
    page.keyboard.press("ArrowRight")
    assert readout.inner_text() == "7 subject looks hardest at 9 end (1.00)."
    view.locator("[data-axis=step]").focus()
    page.keyboard.press("ArrowLeft")
    assert (
        readout.inner_text() == "7 subject looks hardest at 8 <b>relation</b> (1.00)."
    )
    assert view.locator("label", has_text="step").locator("output").inner_text() == "0"
    page.mouse.move(0, 0)
    view.locator("select").select_option("other")
    assert readout.inner_text().startswith("9 end")
    assert view.locator(".map rect").count() == 10


def test_cells_of_lens_and_patching_are_read_out(page: Any) -> None:
    lens, patching = page.locator(".cells").all()
    lens.locator("td").nth(1).hover()
    readouts = page.locator(".prompt .readout")
    assert readouts.first.inner_text() == "layer 0, ·capital: top ·Paris"
    patching.locator("td").first.focus()
    page.keyboard.press("ArrowRight")
    assert readouts.nth(1).inner_text() == "layer 0, ·capital: 0.800"


def test_the_theme_can_be_chosen_and_paper_is_light(page: Any) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.locator("#theme").click()
    assert page.evaluate(ground) != light
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(ground) == light
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(ground) != light


def test_figures_are_as_dark_as_the_page(page: Any) -> None:
    sheet = page.locator("figure img").first

    def ground() -> Any:
        page.wait_for_timeout(100)
        return imread(io.BytesIO(sheet.screenshot()))[20, 20, :3].mean()

    assert ground() > 0.9
    page.locator("#theme").click()
    assert ground() < 0.2


def test_in_print_there_are_no_controls(page: Any) -> None:
    page.emulate_media(media="print")
    assert page.locator(".tools:visible, button:visible").count() == 0
    assert page.locator("#paper-1 .leaf:visible").count() == 3
    assert page.locator(".choose:visible").count() == 0
    # A sheet of paper is about as wide as a phone; it is set like a desk all the same.
    page.set_viewport_size({"width": 700, "height": 900})
    assert page.locator(".summary thead").is_visible()
    assert page.pdf().startswith(b"%PDF")


def test_the_policy_lets_no_other_script_run(
    page: Any, browser: Any, file: Path
) -> None:
    del page
    text = file.read_text("utf-8").replace("</body>", "<script>x = 1</script></body>")
    other = file.with_name("other.html")
    other.write_text(text, "utf-8")
    foreign = browser.new_page()
    foreign.goto(other.as_uri())
    assert foreign.evaluate("typeof x") == "undefined"
    assert json.loads(foreign.locator("#verdicts-1").text_content()).startswith("claim")
    foreign.close()
