"""Reports as web pages, opened in a browser where one is installed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from matplotlib.figure import Figure as Drawing

from headprune.report.document import Column, Document, Figure, Notes, Section, Signatures, Table
from headprune.report.render import html

from .browser import chromium, open_page

needs_browser = pytest.mark.skipif(
    chromium() is None, reason="no Chromium is installed (on Debian: apt-get install chromium)"
)


def drawing() -> Drawing:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    axes.plot([0, 1], [0, 1], "o-", color="#333333", label="control & <baseline>")
    axes.legend()
    return figure


DOCUMENT = Document(
    title="Heads <script>alert(1)</script> & more",
    blocks=[
        Table(
            caption="Values:",
            columns=[Column("model"), Column("form"), Column("BLEU", "{:.2f}".format)],
            rows=[["<b>control</b>", None, 30.0], ["50%", "remove", 29.5]],
        ),
        Notes(["form: `remove`, the weights are gone & <i>lost</i>."]),
        Section(title="More figures", blocks=[Section(title="Inner", blocks=[Notes(["deep"])])]),
        Section(
            title="Signatures & settings", blocks=[Signatures(["plan:ES=44|seed:*|form:<none>"])]
        ),
    ],
    sheet=Table(columns=[], rows=[]),
    values={},
    figures=[
        Figure(name="one", draw=drawing, alt='A "quoted" curve', caption="One."),
        Figure(name="two", draw=drawing, alt="Another"),
    ],
)


def test_labels_are_text_and_no_markup() -> None:
    page = html.render(DOCUMENT)
    assert "<script>alert" not in page
    assert "Heads &lt;script&gt;alert(1)&lt;/script&gt; &amp; more</h1>" in page
    assert '<th scope="row">&lt;b&gt;control&lt;/b&gt;</th>' in page
    assert "<code>remove</code>, the weights are gone &amp; &lt;i&gt;lost&lt;/i&gt;." in page
    assert "plan:ES=44|seed:*|form:&lt;none&gt;" in page


def test_a_page_has_headings_captions_and_a_list_of_its_sections() -> None:
    page = html.render(DOCUMENT)
    assert re.findall(r"<h(\d)[^>]*>([^<]*)<", page)[1:] == [
        ("2", "More figures"),
        ("3", "Inner"),
        ("2", "Signatures &amp; settings"),
    ]
    anchors = re.findall(r'<li><a href="#([^"]+)">', page)
    assert anchors == ["more-figures", "signatures-settings"]
    assert all(f'id="{anchor}"' in page for anchor in anchors)
    assert '<caption id="table1">Values</caption>' in page
    assert [*re.findall(r'<th scope="col"([^>]*)>', page)] == [' class="words"'] * 2 + [""]


def test_figures_are_svg_with_text_and_no_id_twice() -> None:
    page = html.render(DOCUMENT)
    assert page.count("<svg") == page.count("</svg>") == 2
    assert 'role="img" aria-label="A &#34;quoted&#34; curve"' in page
    assert page.count("control &amp; &lt;baseline&gt;</text>") == 2
    drawn = "".join(re.findall("<svg.*?</svg>", page, flags=re.DOTALL))
    assert "#333333" not in drawn and "#000000" not in drawn  # unseen on a dark page
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    used = re.findall(r'(?:xlink:href="|url\()#([^")]*)', page)
    assert used and set(used) <= set(ids)


def test_the_same_document_gives_the_same_page() -> None:
    assert html.render(DOCUMENT) == html.render(DOCUMENT)


def test_a_page_without_matplotlib_lacks_its_figures_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    page = html.render(DOCUMENT)
    assert "<svg" not in page and "<figure" not in page
    assert "Values</caption>" in page


@needs_browser
@pytest.mark.slow
def test_a_browser_shows_a_page_without_errors_and_without_the_network(tmp_path: Path) -> None:
    assert_clean(html.render(DOCUMENT), tmp_path)


@needs_browser
@pytest.mark.slow
def test_the_browser_notices_errors_and_requests(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        "<!DOCTYPE html><title>x</title><img src='http://example.test/x.png'>"
        "<script>nothingOfThisName()</script>"
    )
    opened = open_page(page, profile=tmp_path / "profile")
    assert opened.requests == ["http://example.test/x.png"]
    assert any("nothingOfThisName is not defined" in line for line in opened.console)


def assert_clean(text: str, folder: Path) -> str:
    """Check a page in the browser; returns its DOM.

    The page is opened once as it is, and once without the policy that stops its requests.
    """
    page = folder / "page.html"
    dom = ""
    for name, content in {
        "open": re.sub('<meta http-equiv="Content-Security-Policy"[^>]*>', "", text),
        "closed": text,
    }.items():
        page.write_text(content, encoding="utf-8")
        opened = open_page(page, profile=folder / name)
        assert opened.console == []
        assert opened.requests == []
        dom = opened.dom
    return dom
