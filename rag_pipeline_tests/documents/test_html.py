from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.extraction import ExtractionFailure
from rag_pipeline.documents.html import extract
from rag_pipeline.documents.states import WarningKind
from rag_pipeline_tests.documents.conftest import text_of

OPTIONS = ExtractionConfig()
PROSE = "Every bike is looked at twice a year, in spring and in autumn, by two people from the workshop. " * 4


def read(body: str, head: str = "") -> str:
    return text_of(extract(f"<html><head>{head}</head><body>{body}</body></html>".encode(), OPTIONS))


def test_headings_paragraphs_and_breaks() -> None:
    assert read("<h1>A  <em>b</em></h1><p>one<br>two</p>three<h3>C</h3>") == (
        "# A b\n\none\ntwo\n\nthree\n\n### C\n"
    )


def test_words_of_inline_elements_are_not_torn_apart() -> None:
    assert read("<p>H<sub>2</sub>O and <b>b</b>old, <code>x=1</code></p>") == "H2O and bold, x=1\n"


def test_lists_keep_their_nesting_and_numbers() -> None:
    body = "<ul><li>a<ol start='3'><li>x</li><li>y</li></ol></li><li><p>b</p><p>c</p></li><li></li></ul>"
    assert read(body) == "- a\n  3. x\n  4. y\n- b\n\n  c\n"


def test_code_keeps_its_lines_and_its_hashes() -> None:
    body = "<pre><code class='language-sh'># comment\n  make\n\n</code></pre><pre>```\nx<br>y</pre>"
    assert read(body) == "```sh\n# comment\n  make\n```\n\n````\n```\nx\ny\n````\n"


def test_text_that_looks_like_markdown_structure_is_escaped() -> None:
    assert read("<p># not a heading</p><p>```</p><p>C# is fine</p>") == (
        "\\# not a heading\n\n\\```\n\nC# is fine\n"
    )


def test_tables_are_markdown_tables() -> None:
    body = (
        "<table><caption>Parts</caption><tr><th>a</th><th>b|c</th><th>d</th></tr>"
        "<tr><td rowspan=2>1</td><td colspan=2>two<ul><li>x<li>y</ul></td></tr><tr><td>3</td><td>4</td></tr></table>"
    )
    assert read(body) == (
        "Parts\n\n| a | b\\|c | d |\n| --- | --- | --- |\n| 1 | two x y |  |\n|  | 3 | 4 |\n"
    )


def test_a_table_that_only_places_blocks_is_none() -> None:
    assert read("<table><tr><td><h2>A</h2><p>x</p></td><td><p>y</p></td></tr></table>") == "## A\n\nx\n\ny\n"


def test_what_a_reader_does_not_see_is_left_out() -> None:
    body = (
        "<script>var a = 'cool script'</script><style>p {}</style><p hidden>h</p><p style='display: none'>n</p>"
        "<template><p>t</p></template><p>seen<!-- comment --></p>"
    )
    assert read(body) == "seen\n"


def test_navigation_is_left_out_and_main_is_kept() -> None:
    page = (
        "<header><h1>Handbook</h1><a href=/>Home</a></header><nav><ul><li>Menu</ul></nav>"
        f"<main><h2>Part</h2><p>{PROSE}</p><ul><li>kept item</ul></main><footer>Imprint</footer>"
    )
    text = read(page)
    assert text.startswith("# Handbook\n\n## Part\n\nEvery bike")
    assert "- kept item" in text
    assert not any(word in text for word in ("Home", "Menu", "Imprint"))


def test_a_small_main_does_not_hide_the_page() -> None:
    assert "Every bike" in read(f"<main><p>Loading</p></main><div><p>{PROSE}</p></div>")


def test_without_main_short_margins_go_and_paragraphs_stay() -> None:
    text = read(
        f"<div><a href=/a>Home</a> <a href=/b>About</a></div><h2>Part</h2><p>{PROSE}</p><table><tr><th>a</th>"
        f"<th>b</th></tr><tr><td>1</td><td>2</td></tr></table><p>{PROSE}</p><div><a href=/c>Legal notes</a></div>"
    )
    assert text.startswith("## Part\n\nEvery bike")
    assert "| 1 | 2 |" in text
    assert "Home" not in text
    assert "Legal notes" not in text


def test_much_left_out_is_a_warning() -> None:
    page = f"<html><body><nav><p>{PROSE * 3}</p></nav><main><p>{PROSE * 2}</p></main></body></html>"
    content = extract(page.encode(), OPTIONS)
    assert [warning.kind for warning in content.warnings] == [WarningKind.MAIN_TEXT_UNCERTAIN]
    assert content.warnings[0].message.startswith("60% of")


def test_the_share_left_out_is_told() -> None:
    page = f"<html><body><nav>Menu here</nav><main><p>{PROSE}</p></main></body></html>"
    share = extract(page.encode(), OPTIONS).metadata["left_out_share"]
    letters = len("Menuhere") / (
        len("Menuhere") + len(PROSE.replace(" ", "").replace(",", "").replace(".", ""))
    )
    assert share == pytest.approx(letters, abs=0.001)
    assert "left_out_share" not in extract(b"<p>All of it</p>", OPTIONS).metadata


def test_a_short_page_keeps_its_short_paragraphs() -> None:
    assert read("<p>Intro.</p><table><tr><td>a<ul><li>x</li><li>y</li></ul></td><td>b</td></tr></table>") == (
        "Intro.\n\n| a x y | b |\n| --- | --- |\n"
    )


def test_scripts_with_odd_ends_do_not_hide_the_page() -> None:
    assert read("<p>This is a test.</p>", "<script>cool script</script language>") == "This is a test.\n"
    content = extract(b"<html><body><script>if (a < b) { go() }\n<p>Below</p></body></html>", OPTIONS)
    assert text_of(content) == "Below\n"
    assert WarningKind.REPAIRED in [warning.kind for warning in content.warnings]


def test_pictures_in_the_page_are_no_text() -> None:
    data = "iVBORw0KGgo" * 40
    body = f"<p>A<img src='data:image/png;base64,{data}'>B<object data='data:x;base64,{data}'>no</object></p>"
    assert read(f"<style>p {{ background: url(data:x;base64,{data}) }}</style>{body}") == "AB\n"


def test_soft_hyphens_are_left_out() -> None:
    assert read("<p>inter&shy;national</p>") == "international\n"


def test_title_and_properties_come_from_the_head() -> None:
    content = extract(
        b"<html lang=en><head><title> The\n page </title><meta name=author content='A. B.'></head><p>x</html>",
        OPTIONS,
    )
    assert content.title == "The page"
    assert content.metadata == {"author": "A. B.", "language": "en"}
    assert text_of(content) == "x\n"


def test_the_declared_encoding_is_used() -> None:
    page = "<html><head><meta charset='koi8-r'></head><body><p>Привет</p></body></html>".encode("koi8-r")
    assert text_of(extract(page, OPTIONS)) == "Привет\n"


def test_the_raw_text_has_what_the_main_text_leaves_out() -> None:
    content = extract(f"<nav>Menu</nav><main><p>{PROSE}</p></main><p hidden>secret</p>".encode(), OPTIONS)
    assert "Menu" in content.raw_text
    assert "secret" in content.raw_text
    assert "Menu" not in text_of(content)


def test_deep_nesting_does_not_lose_the_text() -> None:
    depth = 240
    assert "deep down" in read("<div>" * depth + "deep down" + "</div>" * depth)
    assert "deep item" in read("<ul><li>" * 120 + "deep item" + "</li></ul>" * 120)


def outcome(page: bytes) -> str:
    """The text of a page, or the reason word of its failure."""
    try:
        return text_of(extract(page, OPTIONS))
    except ExtractionFailure as failure:
        return failure.reason.value


@pytest.mark.parametrize("page", [b"<!-- -->", b"   ", b"<?xml version='1.0' encoding='utf-8'?>"])
def test_a_page_without_elements_gives_nothing_or_fails_by_name(page: bytes) -> None:
    assert outcome(page) in ("", "no_text")


@settings(deadline=None, max_examples=60)
@given(st.text(alphabet="<>/ =\"'ahptdrulix\n&;", max_size=120))
def test_any_markup_ends_in_text_or_a_named_failure(markup: str) -> None:
    assert isinstance(outcome(markup.encode()), str)
