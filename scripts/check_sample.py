"""Check the corpus that ships (rag_pipeline/sample) and its questions, and print what it holds.

usage: check_sample.py [--verbose]

Every rule is one that a script can decide: sizes, one place for each needle, no copying into the queries, and
out-of-domain topics that are truly absent. That a needle answers its two queries is for a reader to judge.
The texts are those of the pipeline's own extraction. Exit 1 on any failure.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from rag_pipeline.documents.canonical import Canonical, canonicalise
from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.extraction import extract_file
from rag_pipeline.documents.locators import resolve
from rag_pipeline.documents.source import describe_file
from rag_pipeline.retrieval.citations import fragment, label

SAMPLE = Path(__file__).resolve().parents[1] / "rag_pipeline" / "sample"
TEXT_SUFFIXES = {".md", ".txt", ".html", ".csv", ".vtt"}
SUFFIXES_WANTED = TEXT_SUFFIXES | {".pdf", ".docx", ".pptx", ".xlsx"}
# The kinds of places that needles lie in, by the start of their fragments; `'` opens a quoted sheet.
PLACES = ("char=", "page=", "slide=", "t=", "row=", "'")
MIN_DOCUMENTS, MIN_CHARACTERS = 25, 150_000
QUESTIONS, NEAR, FAR = 39, 21, 9
NEEDLE_LENGTH = range(40, 201)
OWN_WORDS_RUN, TICKET_RUN, TICKET_OVERLAP = 7, 4, 0.25
BLIND = 512
MIN_PDF_PAGES = 3
# A phrase of this many words that two places share is repetition, or text that somebody copied.
REPEATED_RUN = 14

_STOP_WORDS = """
a an and are as at be been but by can could did do does for from get got had has have how i if in into is it
its me may might more most must my no nor not of off on or our out over so such than that the their them then
there these they this those to too up us was we were what when where which while who why will with would you
your
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
SUFFIXES = ("ations", "ation", "ings", "ing", "ies", "ied", "ers", "er", "es", "ed", "ly", "s")

failures: list[str] = []


def fail(*parts: object) -> None:
    """Note a failure."""
    failures.append(" ".join(str(part) for part in parts))


def words(text: str) -> list[str]:
    """Return the lower-cased runs of letters and digits of `text`."""
    return re.findall(r"[a-z0-9]+", text.lower())


def stem(word: str) -> str:
    """Return `word` without a common ending, as long as four letters remain."""
    for suffix in SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 4:
            return word.removesuffix(suffix)
    return word


def content_words(text: str) -> set[str]:
    """Return the stems of the words of `text` that carry meaning."""
    return {stem(word) for word in words(text) if word not in STOP_WORDS and len(word) > 1}


def runs(text: str, length: int) -> set[tuple[str, ...]]:
    """Return every run of `length` words of `text`."""
    found = words(text)
    return {tuple(found[i : i + length]) for i in range(len(found) - length + 1)}


def folded(text: str) -> str:
    """Return `text` without case and with single blanks."""
    return " ".join(text.lower().split())


def canonical(path: Path) -> Canonical:
    """Return a document in its final state, by the pipeline's own extraction."""
    listed = describe_file(path)
    options = ExtractionConfig()
    document = canonicalise(path.name, extract_file(path, listed.media_type, options), options)
    if not document.text:
        raise ValueError(f"{path.name} gives no text: {document.reason} {document.message or ''}")
    if document.warnings:
        fail(path.name, "is extracted with warnings:", [warning.message for warning in document.warnings])
    return document


def in_fence(text: str, position: int) -> bool:
    """Return whether `position` lies inside a fenced code block."""
    return len(re.findall(r"^\s*```", text[:position], flags=re.MULTILINE)) % 2 == 1


def check_documents(texts: dict[str, str]) -> None:
    """Check sizes and forms of the documents and print them."""
    for name, text in texts.items():
        path = SAMPLE / "corpus" / name
        sections = sum(
            not in_fence(text, match.start()) for match in re.finditer(r"^## ", text, flags=re.MULTILINE)
        )
        longest = max(len(paragraph) for paragraph in re.split(r"\n\n+", text))
        tables = len(re.findall(r"^\|[-:| ]+\|\s*$", text, flags=re.MULTILINE))
        fences = len(re.findall(r"^\s*```", text, flags=re.MULTILINE)) // 2
        formulas = text.count("$$") // 2
        print(
            f"  {name:38} {len(text):7,} characters {sections:3} sections {tables:2} tables "
            f"{fences:2} fences {formulas:2} formulas, longest paragraph {longest:5,}"
        )
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*\.[a-z]+", name) or path.suffix not in SUFFIXES_WANTED:
            fail(name, "is not named in kebab-case with a known suffix")
        raw = path.read_bytes()
        if path.suffix in TEXT_SUFFIXES and (b"\r" in raw or raw.startswith(b"\xef\xbb\xbf")):
            fail(name, "has a carriage return or a byte order mark")
        if path.suffix == ".md" and not re.match(r"\n*# [^\n]+\n\n", text):
            fail(name, 'does not start with "# Title" and a blank line')
        if path.suffix == ".html":
            check_page(name, raw.decode())
        if path.suffix == ".pdf":
            check_pdf(name, path, text)
    total = sum(map(len, texts.values()))
    kinds = Counter(Path(name).suffix for name in texts)
    print(f"  {len(texts)} documents, {total:,} characters, {dict(sorted(kinds.items()))}")
    if len(texts) < MIN_DOCUMENTS or total < MIN_CHARACTERS:
        fail(f"the corpus is too small: {len(texts)} documents, {total} characters")
    if missing := SUFFIXES_WANTED - set(kinds):
        fail("no document of kind", missing)
    markdown = "\n".join(text for name, text in texts.items() if name.endswith(".md"))
    for what, pattern in {
        "a fenced block with a comment": r"^```[\s\S]*?^# [\s\S]*?^```",
        "a fenced block with a line that looks like a section": r"^```[^`]*?^## [^`]*?^```",
        "a display formula": r"^\$\$$",
        "a table": r"^\|[-:| ]+\|$",
        "a list": r"^- ",
        "a numbered list": r"^1\. ",
    }.items():
        if not re.search(pattern, markdown, flags=re.MULTILINE):
            fail("no Markdown document has", what)
    seen: dict[tuple[str, ...], str] = {}
    for name, text in texts.items():
        prose = re.sub(r"^```.*?^```|^\|.*?$|^.*\$.*$", "", text, flags=re.MULTILINE | re.DOTALL)
        for run in runs(prose, REPEATED_RUN):
            if run in seen:
                fail(f"{name} and {seen[run]} share the words", repr(" ".join(run)))
            seen[run] = name


def check_page(name: str, page: str) -> None:
    """Check that an HTML document is a page as one finds them, and not only its text."""
    for tag in ("nav", "header", "footer", "main", "script", "style", "table"):
        if f"<{tag}" not in page:
            fail(name, f"has no <{tag}>")


def check_pdf(name: str, path: Path, text: str) -> None:
    """Check the pages of a PDF document and that running lines stay out of its text."""
    from pypdf import PdfReader

    pages = PdfReader(path).pages
    is_scan = not any(page.extract_text().strip() for page in pages)
    if len(pages) < MIN_PDF_PAGES and not is_scan:
        fail(name, "has only", len(pages), "pages")
    if running := len(re.findall(r"^(?:Page|-) \d+(?: -)?$", text, flags=re.MULTILINE)):
        fail(name, f"has {running} running page numbers in its text")


def check_questions(documents: dict[str, Canonical], verbose: bool) -> None:
    """Check needles and queries and print how they are spread."""
    texts = {name: document.text for name, document in documents.items()}
    places: Counter[str] = Counter()
    questions = read_lines("questions.jsonl")
    if [question["id"] for question in questions] != [f"q{i:02}" for i in range(1, QUESTIONS + 1)]:
        fail("question ids are not", f"q01 to q{QUESTIONS}")
    everything = {name: folded(text) for name, text in texts.items()}
    overlaps: tuple[list[float], list[float]] = ([], [])
    queries: Counter[str] = Counter()
    cut, long, beside, identified, used = [], 0, 0, 0, Counter[str]()
    for question in questions:
        tag, needle, name = question["id"], question["needle"], question["document"]
        if set(question) != {"id", "needle", "document", "queries"} or len(question["queries"]) != 2:
            fail(tag, "has other keys or not two queries")
        if "\n" in needle or needle != needle.strip() or len(needle) not in NEEDLE_LENGTH:
            fail(tag, "needle spans lines, has outer blanks or is", len(needle), "characters long")
        found = {other: text.count(needle) for other, text in texts.items() if needle in text}
        if found != {name: 1}:
            fail(tag, "needle is found in", found or "no document", "and not once in", name)
            continue
        if sum(text.count(folded(needle)) for text in everything.values()) != 1:
            fail(tag, "needle repeats when case and blanks are ignored")
        text = texts[name]
        start = text.index(needle)
        end = start + len(needle)
        media_type = describe_file(SAMPLE / "corpus" / name).media_type
        place = resolve(documents[name].locators, start, end)
        cited = fragment(media_type, start, end, place)
        places.update(kind for kind in PLACES if cited.startswith(f"#{kind}"))
        if verbose:
            print(f"    {tag} {name}{cited} ({label('', media_type, place)})")
        if text[text.rfind("\n", 0, start) + 1 :].startswith("#"):
            fail(tag, "needle is in a heading")
        if in_fence(text, start):
            fail(tag, "needle is in a code block")
        if start // BLIND != (end - 1) // BLIND:
            cut.append(tag)
        # The modulus turns "not found" (-1) into the end of the text.
        paragraph = text.rfind("\n\n", 0, start), text.find("\n\n", end) % (len(text) + 1)
        long += paragraph[1] - paragraph[0] - 2 > BLIND
        around = text[max(0, paragraph[0] - 200) : paragraph[0]] + text[paragraph[1] : paragraph[1] + 200]
        beside += bool(re.search(r"```|^\||\$\$", around, flags=re.MULTILINE))
        identified += bool(re.search(r"\d", needle))
        used[name] += 1
        check_queries(tag, needle, question["queries"], overlaps, verbose)
        queries.update(question["queries"])
    if unused := set(texts) - set(used):
        fail("documents without a needle:", unused)
    if twice := [query for query, count in queries.items() if count > 1]:
        fail("queries that occur twice:", twice)
    if absent := [kind for kind in PLACES if not places[kind]]:
        fail("no needle is cited by", absent)
    print(f"  places of the needles: {dict(places)}")
    print(
        f"  {len(questions)} questions in {len(used)} documents; needles in paragraphs over {BLIND} "
        f"characters: {long}, next to code, table or formula: {beside}, with digits: {identified}"
    )
    print(f"  needles that a cut every {BLIND} characters destroys: {len(cut)} {cut}")
    for what, values in zip(("own words", "ticket"), overlaps, strict=True):
        mean = sum(values) / max(1, len(values))
        print(f"  {what}: share of content words that the needle has: mean {mean:.2f}, max {max(values):.2f}")


def check_queries(
    tag: str, needle: str, queries: list[str], overlaps: tuple[list[float], list[float]], verbose: bool
) -> None:
    """Check that the queries of one question do not copy its needle."""
    for position, (query, length) in enumerate(zip(queries, (OWN_WORDS_RUN, TICKET_RUN), strict=False)):
        if shared := runs(query, length) & runs(needle, length):
            fail(tag, f"query {position} copies {length} words in a row:", shared)
        meaning = content_words(query)
        common = meaning & content_words(needle)
        overlap = len(common) / max(1, len(meaning))
        overlaps[position].append(overlap)
        if position == 1 and overlap > TICKET_OVERLAP:
            fail(tag, f"ticket shares {overlap:.0%} of its content words with the needle:", sorted(common))
        if verbose:
            print(f"    {tag}.{position} {overlap:.2f} {query}")


def check_out_of_domain(texts: dict[str, str]) -> None:
    """Check that the out-of-domain topics are absent from every text."""
    entries = read_lines("out_of_domain.jsonl")
    if [entry["id"] for entry in entries] != [f"o{i:02}" for i in range(1, NEAR + FAR + 1)]:
        fail("out-of-domain ids are not", f"o01 to o{NEAR + FAR}")
    kinds = Counter(entry["kind"] for entry in entries)
    if (kinds["near"], kinds["far"]) != (NEAR, FAR) or len({entry["query"] for entry in entries}) != len(
        entries
    ):
        fail("out-of-domain queries:", dict(kinds), "or one occurs twice")
    absent = json.loads((SAMPLE / "ood_absent_terms.json").read_text(encoding="utf-8"))
    for entry in entries:
        terms = absent.get(entry["id"], [])
        if not terms:
            fail(entry["id"], "has no absent terms")
        for term in terms:
            flags = re.NOFLAG if re.search(r"[A-Z]{2}", term) else re.IGNORECASE
            if not re.search(term, entry["query"], flags) and term == terms[0]:
                fail(entry["id"], f"its first absent term /{term}/ is not in its query")
            for name, text in texts.items():
                if match := re.search(term, text, flags):
                    fail(
                        entry["id"],
                        f"/{term}/ is in {name}: {text[max(0, match.start() - 40) : match.end() + 30]!r}",
                    )
    print(f"  {len(entries)} out-of-domain queries: {dict(kinds)}")


def read_lines(name: str) -> list[dict[str, Any]]:
    """Return the objects of a JSON lines file of the sample."""
    return [json.loads(line) for line in (SAMPLE / name).read_text(encoding="utf-8").splitlines()]


def main() -> None:
    """Check everything; exit 1 on a failure."""
    documents = {path.name: canonical(path) for path in sorted((SAMPLE / "corpus").iterdir())}
    texts = {name: document.text for name, document in documents.items()}
    check_documents(texts)
    check_questions(documents, "--verbose" in sys.argv)
    check_out_of_domain(texts)
    for failure in failures:
        print("FAIL", failure)
    if failures:
        sys.exit(1)
    print("all checks pass")


if __name__ == "__main__":
    main()
