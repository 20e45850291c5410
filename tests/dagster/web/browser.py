"""Use Dagster's pages in a browser: click, read texts, and take screenshots.

Chromium is Debian's own (`make browser`), headless, and connects to the server alone.
"""

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Locator, Page, expect, sync_playwright

from tests.dagster.web.server import Server

QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
SECONDS = 180  # a busy machine takes half a minute to show the first page


@dataclass(frozen=True)
class Person:
    """A user of a page, who takes screenshots."""

    page: Page
    address: str
    pictures: Path

    def opens(self, path: str) -> None:
        self.page.goto(self.address + path)

    def backfills(self, asset: str, partitions: str) -> None:
        """Materialises a range of an asset's partitions, by clicking."""
        self.opens(f"/assets/{asset}")
        self.button("Materialize").click()
        chosen = self.page.get_by_placeholder("ex: ")
        chosen.fill(partitions)
        chosen.press("Enter")
        self.photographs("backfill")
        self.button("Launch backfill").click()
        expect(self.page.get_by_placeholder("ex: ")).to_be_hidden()

    def sees_partitions(self, asset: str, **numbers: int) -> None:
        """The states of an asset's partitions are told as numbers beside the bar."""
        self.opens(f"/assets/{asset}?view=partitions")
        for state, number in numbers.items():
            expect(self.page.get_by_text(f"{state.capitalize()} ({number})")).to_be_visible()
        self.photographs("partitions")

    def sees_metadata(self, asset: str, told: Mapping[str, str]) -> None:
        """What an asset's last materialisation says; waits for each entry, as the page comes bit by bit."""
        self.opens(f"/assets/{asset}")
        for name, text in told.items():
            named = self.page.get_by_role("cell", name=name, exact=True)
            expect(self.page.get_by_role("row").filter(has=named).get_by_role("cell").last).to_contain_text(text)
        self.photographs("view")

    def sees_lineage(self, asset: str, *assets: str) -> None:
        """The graph around an asset shows these."""
        self.opens(f"/assets/{asset}?view=lineage&lineageScope=neighbors&lineageDepth=3")
        for name in assets:
            expect(self.page.get_by_text(name, exact=True).first).to_be_visible()
        expect(self.page.get_by_text("Loading...")).to_have_count(0)
        self.photographs("lineage")

    def materialises(self, asset: str, *, missing: bool = False) -> None:
        """Materialises one asset, by clicking; missing: and confirms that one which it reads never was."""
        self.opens(f"/assets/{asset}")
        self.button("Materialize").click()
        if missing:
            self.button("Confirm").click()

    def checks(self, asset: str) -> None:
        """Executes the checks of an asset, by clicking."""
        self.opens(f"/assets/{asset}?view=checks")
        self.button("Execute all").click()

    def sees_failed_check(self, asset: str, hidden: str, *shown: str) -> None:
        """The page of the check has these texts, and a value of a row nowhere."""
        self.opens(f"/assets/{asset}?view=checks")
        for text in ("Failed", *shown):
            expect(self.page.get_by_text(text).first).to_be_visible()
        self.photographs("check")
        assert hidden not in self.page.content()

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name)

    def photographs(self, name: str) -> None:
        self.page.screenshot(path=self.pictures / f"{name}.png", full_page=True)


def chromium() -> str | None:
    """Return the path of the browser, None if it is not installed."""
    return shutil.which("chromium")


@contextlib.contextmanager
def person(server: Server, pictures: Path) -> Iterator[Person]:
    """Open the browser, and close it after the block."""
    pictures.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=chromium(), args=QUIET)
        page = browser.new_page(viewport={"width": 1400, "height": 2000})
        page.set_default_timeout(SECONDS * 1000)
        expect.set_options(timeout=SECONDS * 1000)
        server.ask("mutation { setNuxSeen }")  # Dagster's welcome dialog appears late, and closes other dialogs
        yield Person(page, f"http://127.0.0.1:{server.port}", pictures)
        browser.close()
