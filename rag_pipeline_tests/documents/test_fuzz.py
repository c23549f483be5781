"""Damaged files: whatever is done to a file, it ends in a named state, and takes nothing else with it.

Bytes are flipped, cut out, doubled, overwritten and cut off; in archives also those of the members, since a damaged
archive stops every reader at its check sums. Seeded, so that a failure comes back.
"""

from __future__ import annotations

import io
import random
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rag_pipeline.documents.canonical import canonicalise
from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.isolation import ExtractionJob, extract_isolated
from rag_pipeline.documents.source import scan_source
from rag_pipeline.documents.states import DocumentState, FailureReason
from rag_pipeline_tests.documents.office_files import (
    CHART,
    DIAGRAM,
    docx,
    frame,
    notes,
    paragraph,
    pptx,
    shape,
    text_cell,
    xlsx,
    zipped,
)

PER_FORMAT = 60
BOX = f"<v:textbox><w:txbxContent>{paragraph('box')}</w:txbxContent></v:textbox>"
BOX = f"<w:r><w:pict><v:shape>{BOX}</v:shape></w:pict></w:r>"
TABLE = "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc><w:tc><w:p/></w:tc></w:tr></w:tbl>"
FILES: dict[str, bytes] = {
    "docx": docx(
        paragraph("Title", "Heading1")
        + f"<w:p>{BOX}<w:ins><w:r><w:t>words</w:t></w:r></w:ins><w:r><w:footnoteReference w:id='2'/></w:r></w:p>"
        + TABLE
        + "<w:p><w:r><w:drawing><c:chart r:id='rId2'/></w:drawing></w:r></w:p><w:altChunk r:id='rId3'/>",
        [("rId1", "footnotes", "footnotes.xml"), ("rId2", "chart", "c.xml"), ("rId3", "aFChunk", "a.html")],
        {
            "word/footnotes.xml": '<w:footnotes xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
            f'<w:footnote w:id="2">{paragraph("note")}</w:footnote></w:footnotes>',
            "word/c.xml": CHART,
            "word/a.html": "<p>chunk",
        },
    ),
    "pptx": pptx(
        [
            shape("T", "ctrTitle") + shape("one\ntwo", "body"),
            frame("<c:chart r:id='rId2'/>")
            + frame("<dgm:relIds r:dm='rId3'/>")
            + "<p:grpSp>"
            + shape("x")
            + "</p:grpSp>",
        ],
        {
            2: [
                ("rId1", "notesSlide", "../n.xml"),
                ("rId2", "chart", "../c.xml"),
                ("rId3", "diagramData", "../d.xml"),
            ]
        },
        {"ppt/n.xml": notes("say"), "ppt/c.xml": CHART, "ppt/d.xml": DIAGRAM},
    ),
    "xlsx": xlsx(
        {
            "S": f"<row r='1'>{text_cell('A1', 'name')}{text_cell('B1', 'docks')}</row>"
            f"<row r='2'>{text_cell('A2', 'Quay')}<c r='B2'><f>1+1</f></c><c r='D9' t='e'><v>#N/A</v></c></row>",
            "H": "<row r='1'><c r='A1'><v>1.5</v></c></row>",
        },
        {"H": "hidden"},
    ),
    "csv": b'name;note\n"Old; Quay";"two\nlines"\nFellgate;x\n',
    "tsv": b"a\tb\n1\t2\n",
    "vtt": b"WEBVTT\n\nNOTE x\n\n1\n00:01.000 --> 00:02.000\n<v A>One.</v>\n\n00:02.000 --> 00:03.000\n<v B>Two.</v>\n",
    "srt": b"1\n00:00:01,000 --> 00:00:02,000\nOne.\n\n2\n00:00:02,000 --> 00:00:03,000\nTwo.\n",
    "html": "<html><head><meta charset=utf-8><script>a</script></head><body><h1>Ü</h1>"
    "<table><tr><th>a</th></tr></table><ul><li>x</ul><pre>c</pre></body></html>".encode(),
    "md": "---\ntitle: T\n---\n# Ü\n\n```\n# c\n```\n\n## References\n\n- x\n".encode(),
    "txt": "Grüße\n".encode("utf-16"),
}


def damaged(data: bytes, chance: random.Random) -> bytes:
    """`data` after one to four accidents."""
    found = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        if not found:
            break
        at = chance.randrange(len(found))
        length = chance.randint(1, max(1, min(40, len(found) // 4)))
        accident = chance.randrange(6)
        if accident == 0:
            found[at] ^= 1 << chance.randrange(8)
        elif accident == 1:
            del found[at : at + length]
        elif accident == 2:
            found[at:at] = found[at : at + length] * chance.randint(1, 3)
        elif accident == 3:
            found[at : at + length] = bytes(length)
        elif accident == 4:
            found[at : at + length] = chance.randbytes(length)
        else:
            del found[at:]
    return bytes(found)


def damaged_member(data: bytes, chance: random.Random) -> bytes:
    """The archive with one member damaged, or left out, and the check sums right."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = chance.choice(sorted(members))
    if chance.random() < 0.1:
        del members[name]
    else:
        members[name] = damaged(members[name], chance)
    return zipped(members)


def variants(suffix: str, data: bytes) -> Iterator[bytes]:
    chance = random.Random(f"accidents of {suffix}")
    is_archive = data.startswith(b"PK")
    for number in range(PER_FORMAT):
        yield damaged_member(data, chance) if is_archive and number % 4 else damaged(data, chance)


def outcome_of_all(folder: Path, options: ExtractionConfig) -> None:
    jobs = [ExtractionJob.of(d) for d in scan_source(folder) if d.state is DocumentState.LISTED]
    seen = 0
    for job, outcome in extract_isolated(jobs, options, folder):
        seen += 1
        document = canonicalise(job.document_id, outcome, options)
        if document.state is DocumentState.FAILED:
            assert isinstance(document.reason, FailureReason), job.document_id
            assert document.message, job.document_id
            assert document.reason not in (FailureReason.CRASHED, FailureReason.TIMEOUT), (
                job.document_id,
                document.message,
            )
            continue
        assert document.state is DocumentState.INDEXED
        document.text.encode("utf-8")
        # Where places are known they are known for every character, once and in order.
        ends = [0]
        for span in document.locators:
            assert span.start == ends[-1], job.document_id
            ends.append(span.end)
        assert not document.locators or ends[-1] == len(document.text), job.document_id
    assert seen == len(jobs)


@pytest.mark.parametrize("suffix", FILES)
def test_the_files_are_whole_before_they_are_damaged(
    tmp_path: Path, suffix: str, options: ExtractionConfig
) -> None:
    (tmp_path / f"a.{suffix}").write_bytes(FILES[suffix])
    (job,) = [ExtractionJob.of(document) for document in scan_source(tmp_path)]
    ((_, outcome),) = extract_isolated([job], options, tmp_path)
    assert canonicalise("a", outcome, options).state is DocumentState.INDEXED, outcome.message


@pytest.mark.slow
@pytest.mark.parametrize("suffix", FILES)
def test_every_damaged_file_ends_in_a_named_state(
    tmp_path: Path, suffix: str, options: ExtractionConfig
) -> None:
    for number, data in enumerate(variants(suffix, FILES[suffix])):
        (tmp_path / f"{number:03}.{suffix}").write_bytes(data)
    outcome_of_all(tmp_path, replace(options, workers=2, timeout=30.0, memory_limit_mb=2048))
