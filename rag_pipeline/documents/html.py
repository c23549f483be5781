"""HTML: the main text of a page, with headings, lists, tables and code; never scripts, styles or menus.

The main text is `<main>` where the page has one, else its one `<article>`, else the whole body without
navigation. In the last case trafilatura is asked what it takes for the text, and only menus, link lists and
short lines that stand before or after everything it took are left out: a lost paragraph costs more than a
kept menu.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.encoding import decode
from rag_pipeline.documents.extraction import Content, ExtractionFailure, ExtractionWarning, Segment
from rag_pipeline.documents.html_blocks import Block, blocks_of, flat_text
from rag_pipeline.documents.states import FailureReason, WarningKind

if TYPE_CHECKING:
    from lxml.html import HtmlElement

EXTRACTOR_VERSION = "2"

_DECLARED = re.compile(
    rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]+)|<\?xml[^>]{0,100}?encoding=[\"']([\w.:-]+)",
    re.IGNORECASE,
)
_DECLARED_WITHIN = 4096
# A script up to the first tag that no script has, for pages on which nothing else is left.
_UNCLOSED_SCRIPT = re.compile(
    r"<script\b[^>]*>(?:(?!</script|</?(?:body|main|article|section|div|p|h[1-6]|ul|ol|table)\b).)*",
    re.IGNORECASE | re.DOTALL,
)
_NAVIGATION_ROLES = frozenset(
    {"navigation", "search", "contentinfo", "menu", "menubar", "dialog", "alertdialog"}
)
# A <main> or <article> with less than this share of the body's words is not taken for the main text.
_MAIN_SHARE = 0.25
_ARTICLE_SHARE = 0.5
_SHORT_LINE = 60
_TRUSTED_SHARE = 0.5
_NOT_A_LETTER = re.compile(r"[\W_]+")


def extract(data: bytes, options: ExtractionConfig) -> Content:
    """Return the main text of an HTML page in one segment; `title` is that of its `<title>`.

    The metadata's `left_out_share` tells how much of the page's text was taken for navigation.
    """
    declared = _DECLARED.search(data[:_DECLARED_WITHIN])
    label = next((group.decode("ascii") for group in declared.groups() if group), None) if declared else None
    decoded = decode(data, label)
    warnings = list(decoded.warnings)
    source = decoded.text
    page = _parse(source)
    body = _body(page)
    if not _all_text(body) and _UNCLOSED_SCRIPT.search(source):
        source = _UNCLOSED_SCRIPT.sub("", source)
        page = _parse(source)
        body = _body(page)
        warnings.append(
            ExtractionWarning(
                WarningKind.REPAIRED,
                "a script that is never closed hid the page; it was taken out by a guess",
            )
        )
    root, is_marked = _main(body)
    blocks = blocks_of(root, _in_article if is_marked else _outside_navigation)
    everything = blocks_of(body)
    if not is_marked:
        blocks = _trimmed(blocks, source)
    blocks = _with_page_heading(blocks, body)
    if not blocks:
        blocks = everything
    kept, total = _size(blocks), _size(everything)
    if total and kept < 0.5 * total:
        warnings.append(
            ExtractionWarning(
                WarningKind.MAIN_TEXT_UNCERTAIN,
                f"{1 - kept / total:.0%} of the page's text was taken for navigation and left out",
            )
        )
    text = "\n\n".join(block.text for block in blocks)
    metadata: dict[str, Any] = dict(_metadata(page))
    if kept < total:
        metadata["left_out_share"] = round(1 - kept / total, 3)
    return Content(
        (Segment(text + "\n" if text else ""),),
        raw_text=_all_text(body),
        title=_text_of(page, "string(//head/title)"),
        metadata=metadata,
        warnings=tuple(warnings),
    )


def _parse(text: str) -> HtmlElement:
    from lxml import etree, html

    # Given as UTF-8 bytes: lxml refuses a string that declares an encoding of its own.
    parser = html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True)
    try:
        page = html.document_fromstring(text.replace("\x00", "").encode("utf-8", "replace"), parser=parser)
    except (etree.ParserError, etree.XMLSyntaxError) as error:
        raise ExtractionFailure(FailureReason.NO_TEXT, f"the page holds no element: {error}") from error
    return page


def _body(page: HtmlElement) -> HtmlElement:
    body = page.find("body")
    return page if body is None else body


def _main(body: HtmlElement) -> tuple[HtmlElement, bool]:
    """Return the element that holds the main text, and whether the page itself marks it as such."""
    total = len(_letters(_all_text(body))) or 1
    for query, share in (
        ("//main | //*[@role='main']", _MAIN_SHARE),
        ("//article[not(ancestor::article)]", _ARTICLE_SHARE),
    ):
        found = body.xpath(f".{query}")
        if len(found) == 1 and len(_letters(_all_text(found[0]))) >= share * total:
            return found[0], True
    return body, False


def _in_article(element: HtmlElement) -> bool:
    return element.tag != "nav" and element.get("role") not in _NAVIGATION_ROLES


def _outside_navigation(element: HtmlElement) -> bool:
    if not _in_article(element):
        return False
    return element.tag != "footer" or bool(element.xpath("boolean(ancestor::article | ancestor::blockquote)"))


def _with_page_heading(blocks: list[Block], body: HtmlElement) -> list[Block]:
    """Put the page's one `<h1>` before the main text where it stands outside of it, as in a page header."""
    if any(block.text.startswith("# ") for block in blocks):
        return blocks
    titles = body.xpath(".//h1")
    return blocks_of(titles[0]) + blocks if len(titles) == 1 else blocks


def _trimmed(blocks: list[Block], text: str) -> list[Block]:
    import trafilatura

    main = trafilatura.extract(
        text, favor_recall=True, include_comments=False, include_tables=True, deduplicate=False
    )
    letters = _letters(main or "")
    # Where little of the page was found, what was not found says nothing: only links are left out then.
    is_trusted = len(letters) >= _TRUSTED_SHARE * _size(blocks)
    first, last = 0, len(blocks)
    while first < last and _is_margin(blocks[first], letters, is_trusted):
        first += 1
    while last > first and _is_margin(blocks[last - 1], letters, is_trusted):
        last -= 1
    return blocks[first:last] or blocks


def _is_margin(block: Block, main: str, is_trusted: bool) -> bool:
    letters = _letters(block.text)
    if block.kind not in ("paragraph", "list") or (letters and letters in main):
        return False
    is_short = is_trusted and len(block.text) < _SHORT_LINE
    return is_short or block.link_characters > 0.5 * len(block.text)


def _all_text(element: HtmlElement) -> str:
    """Return every word of an element that is no code of the page itself; menus and hidden text included."""
    return flat_text(element, lambda node: node.tag not in ("script", "style")).strip()


def _size(blocks: list[Block]) -> int:
    return sum(len(_letters(block.text)) for block in blocks)


def _letters(text: str) -> str:
    return _NOT_A_LETTER.sub("", text)


def _text_of(page: HtmlElement, query: str) -> str | None:
    return " ".join(str(page.xpath(query)).split()) or None


def _metadata(page: HtmlElement) -> dict[str, str]:
    queries = {
        "author": "string(//meta[@name='author']/@content)",
        "description": "string(//meta[@name='description']/@content)",
        "language": "string(/html/@lang)",
    }
    found = {key: _text_of(page, query) for key, query in queries.items()}
    return {key: value for key, value in found.items() if value}
