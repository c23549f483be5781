"""Receipts and publication: only a build that passed gets published, and readers never lose what they have."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rag_pipeline import open_index, steps
from rag_pipeline.core.errors import (
    BuildBlockedError,
    DamagedBuildError,
    IndexNotFoundError,
    PublicationHeldError,
)
from rag_pipeline.core.storage import Storage
from rag_pipeline.evaluation.stages import gate_rules
from rag_pipeline.index.builds import Build, find_build, list_builds
from rag_pipeline.index.publish import (
    Receipt,
    check_receipt,
    describe_publication,
    evaluation_folder,
    newest_receipt,
    prune,
    publish,
    published,
    read_hold,
    read_receipt,
    release_hold,
    rollback,
    write_receipt,
)
from rag_pipeline.settings import Settings
from rag_pipeline.steps import serving_of_settings
from rag_pipeline_tests.conftest import MakeSettings, run_chain, settings_maker

Sections = dict[str, dict[str, Any]]

Abc = tuple["Root", str, str, str]

# Each another build of the same documents, in the order a test publishes them.
A: Sections = {}
B: Sections = {"bm25": {"k1": 1.3}}
C: Sections = {"bm25": {"k1": 1.4}}
D: Sections = {"bm25": {"k1": 1.5}}
# No six queries reach a lower end of 1.
BLOCKED: Sections = {"bm25": {"k1": 9.0}, "gate": {"min_recall": 1.0}}


class Root:
    """One storage root to which builds are published."""

    def __init__(self, make: MakeSettings) -> None:
        self._make = make
        self.storage = Storage(make().storage_root)

    def settings(self, *sections: Sections) -> Settings:
        merged: Sections = {}
        for some in sections:
            for name, keys in some.items():
                merged[name] = {**merged.get(name, {}), **keys}
        return self._make(**merged)

    def publish(self, *sections: Sections) -> str:
        done = run_chain(self.settings(*sections))
        return str(done["candidate_index"].result.build.id)

    def blocked(self, *sections: Sections) -> str:
        with pytest.raises(BuildBlockedError):
            run_chain(self.settings(BLOCKED, *sections))
        candidate = self.storage.read_handle("candidate_index")
        assert candidate is not None
        return str(candidate.info["build"])

    @property
    def served(self) -> str:
        now = published(self.storage)
        assert now is not None
        return now.build

    @property
    def kept(self) -> set[str]:
        return {build.id for build in list_builds(self.storage)}


@pytest.fixture
def root(warm_settings: MakeSettings) -> Root:
    return Root(warm_settings)


@pytest.fixture(scope="module")
def three_published(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: Path) -> tuple[Path, list[str]]:
    """A storage root to which A (with a threshold of its own), B and C were published, and their ids."""
    root = Root(settings_maker(tmp_path_factory.mktemp("three"), tiny_encoder))
    ids = [root.publish(A, {"retrieval": {"threshold": 1.5}}), root.publish(B), root.publish(C)]
    return root.storage.root, ids


@pytest.fixture
def abc(three_published: tuple[Path, list[str]], warm_settings: MakeSettings) -> Abc:
    """A copy of it, to be changed: the root and the ids of A, B and C, which is served."""
    source, (a, b, c) = three_published
    root = Root(warm_settings)
    shutil.rmtree(root.storage.root)
    shutil.copytree(source, root.storage.root)
    return root, a, b, c


# -- receipts -----------------------------------------------------------------------------------------------


@pytest.fixture
def candidate(published_copy: Settings) -> tuple[Storage, Build, Receipt]:
    """A published build and its receipt, to be tampered with."""
    storage = Storage(published_copy.storage_root)
    (build,) = list_builds(storage)
    receipt = newest_receipt(storage, build.id)
    assert receipt is not None
    return storage, build, receipt


def test_a_passing_receipt_of_these_files_and_settings(
    candidate: tuple[Storage, Build, Receipt], published: Settings
) -> None:
    storage, build, receipt = candidate
    assert receipt.build == build.id
    assert receipt.manifest_sha256 == build.manifest_sha256
    assert receipt.passed and receipt.scored
    assert receipt.serving == {"mode": "hybrid", "k": 4, "threshold": 2.0, "reranker": ""}
    assert {"structure", "destroyed_answers"} <= {gate["name"] for gate in receipt.gates}
    assert check_receipt(storage, build, receipt, *asked(published)) == receipt
    assert read_receipt(storage, build.id, receipt.evaluation) == receipt
    assert read_receipt(storage, build.id, "0" * 16) is None
    assert newest_receipt(storage, "0" * 16) is None


def asked(settings: Settings) -> tuple[dict[str, Any], dict[str, Any]]:
    return serving_of_settings(settings), gate_rules(settings.gate)


def test_no_receipt(candidate: tuple[Storage, Build, Receipt], published: Settings) -> None:
    storage, build, _ = candidate
    with pytest.raises(
        BuildBlockedError, match=f"build {build.id} has no receipt: materialise retrieval_evaluation first"
    ):
        check_receipt(storage, build, None, *asked(published))


@pytest.mark.parametrize("field", ["build", "manifest_sha256"])
def test_a_receipt_of_other_files(
    candidate: tuple[Storage, Build, Receipt], published: Settings, field: str
) -> None:
    storage, build, receipt = candidate
    other = replace(receipt, **{field: "0" * 16})
    with pytest.raises(
        BuildBlockedError,
        match=f"the receipt is of build {other.build}, not of exactly the files of build {build.id}: material",
    ):
        check_receipt(storage, build, other, *asked(published))


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_an_evaluation_that_was_tampered_with(
    candidate: tuple[Storage, Build, Receipt], published: Settings, damage: str
) -> None:
    storage, build, receipt = candidate
    report = evaluation_folder(storage, build.id, receipt.evaluation) / "evaluation.json"
    if damage == "changed":
        report.write_text(
            report.read_text().replace('"verdict": "not retrieved', '"verdict": "answered') + " "
        )
    else:
        report.unlink()
    with pytest.raises(
        BuildBlockedError,
        match=f"the evaluation of build {build.id} is missing or was changed after its receipt",
    ):
        check_receipt(storage, build, receipt, *asked(published))


@pytest.mark.parametrize(
    "sections",
    [
        {"retrieval": {"k": 5}},
        {"retrieval": {"threshold": 0.5}},
        {"retrieval": {"mode": "dense"}},
        {"gate": {"alpha": 0.01}},
        {"gate": {"require_questions": True}},
    ],
    ids=["k", "threshold", "mode", "alpha", "require"],
)
def test_a_receipt_under_other_settings(
    candidate: tuple[Storage, Build, Receipt], published: Settings, sections: Sections
) -> None:
    storage, build, receipt = candidate
    with pytest.raises(
        BuildBlockedError,
        match=f"build {build.id} was gated under other retrieval or gate settings than are set",
    ):
        check_receipt(storage, build, receipt, *asked(published.replace(**sections)))


def test_a_receipt_that_does_not_pass(candidate: tuple[Storage, Build, Receipt], published: Settings) -> None:
    storage, build, receipt = candidate
    gates = [
        {**g, "blocks": g["name"] == "structure", "message": "1 problems. vector 3"} for g in receipt.gates
    ]
    failed = replace(receipt, passed=False, gates=gates)
    with pytest.raises(
        BuildBlockedError, match=f"build {build.id} is blocked by the gate: structure: 1 problems. vector 3$"
    ):
        check_receipt(storage, build, failed, *asked(published))


def test_a_build_that_was_changed_after_its_receipt(
    candidate: tuple[Storage, Build, Receipt], published: Settings
) -> None:
    storage, build, receipt = candidate
    vectors = build.folder / "vectors.npy"
    vectors.write_bytes(vectors.read_bytes()[:-4] + b"\0\0\0\0")
    with pytest.raises(DamagedBuildError, match=r"vectors\.npy was changed after it was built"):
        check_receipt(storage, build, receipt, *asked(published))


def test_the_newest_receipt_is_the_one_written_last(candidate: tuple[Storage, Build, Receipt]) -> None:
    storage, build, receipt = candidate
    later = replace(receipt, evaluation="0" * 16, passed=False)
    write_receipt(storage, later)
    assert newest_receipt(storage, build.id) == later
    assert newest_receipt(storage, build.id) != receipt


# -- the step that publishes --------------------------------------------------------------------------------


def test_nothing_is_published_yet(root: Root) -> None:
    assert published(root.storage) is None
    assert describe_publication(root.storage) == "nothing is published yet"


def test_a_build_is_published_once(root: Root) -> None:
    done = run_chain(root.settings(A))["published_index"].result
    assert (done.new, done.pruned) == (True, [])
    now = published(root.storage)
    assert now == done.published
    assert now is not None and now.history == [] and now.scored
    assert now.serving == {"mode": "hybrid", "k": 4, "threshold": 2.0, "reranker": ""}
    again = run_chain(root.settings(A))["published_index"].result
    assert (again.new, again.published) == (False, now)
    assert describe_publication(root.storage) == f"build {now.build} since {now.published_at}"


def test_another_threshold_publishes_the_same_build_anew(root: Root) -> None:
    build = root.publish(A)
    assert root.publish(A, {"retrieval": {"threshold": 1.5}}) == build
    now = published(root.storage)
    assert now is not None
    assert (now.build, now.serving["threshold"]) == (build, 1.5)
    assert [entry["serving"]["threshold"] for entry in now.history] == [2.0]


def test_publishing_alone_asks_for_a_receipt_of_just_that_build(root: Root) -> None:
    """The candidate was made anew, the evaluation is the one of the build before."""
    first = root.publish(A)
    settings = root.settings(B)
    done = run_chain(settings, until="candidate_index")
    evaluation = root.storage.read_handle("retrieval_evaluation")
    assert evaluation is not None
    with (
        steps.open_session(settings, "a test") as session,
        pytest.raises(BuildBlockedError, match="has no receipt: materialise retrieval_evaluation first"),
    ):
        steps.published_index(session, done["candidate_index"].handle, evaluation)
    assert root.served == first


def test_publishing_alone_under_other_settings_is_refused(root: Root) -> None:
    root.publish(A)
    candidate, evaluation = (root.storage.read_handle(n) for n in ("candidate_index", "retrieval_evaluation"))
    assert candidate is not None and evaluation is not None
    settings = root.settings({"retrieval": {"threshold": 0.1}})
    with (
        steps.open_session(settings, "a test") as session,
        pytest.raises(BuildBlockedError, match="gated under other retrieval or gate settings"),
    ):
        steps.published_index(session, candidate, evaluation)


def test_a_blocked_build_leaves_readers_what_they_had_and_stays_to_be_looked_at(root: Root) -> None:
    first = root.publish(A)
    blocked = root.blocked()
    assert root.served == first
    assert blocked in root.kept
    receipt = newest_receipt(root.storage, blocked)
    assert receipt is not None and not receipt.passed
    assert [text.split(":")[0] for text in receipt.failures()] == ["recall_floor"]
    with open_index(root.storage.root / "builds" / blocked) as index:
        assert index.search("parking fines").hits


# -- rollback -----------------------------------------------------------------------------------------------


def test_a_rollback_goes_to_the_build_before_and_holds(abc: Abc) -> None:
    root, a, b, c = abc
    now = rollback(root.storage)
    assert now == published(root.storage)
    assert (now.build, now.rolled_back) == (b, True)
    assert [entry["build"] for entry in now.history] == [c, b, a]
    hold = read_hold(root.storage)
    assert hold is not None and hold["build"] == b
    assert describe_publication(root.storage).endswith(", held by a rollback")
    with open_index(root.settings(C)) as index:
        assert index.build == b


def test_a_build_is_served_again_as_it_was(abc: Abc) -> None:
    root, a, _b, _c = abc
    assert rollback(root.storage, a).serving["threshold"] == 1.5
    with open_index(root.settings(C)) as index:
        assert index.serving.threshold == 1.5


def test_a_hold_stops_publication_until_it_is_released(abc: Abc) -> None:
    root, _a, b, _c = abc
    rollback(root.storage)
    with pytest.raises(
        PublicationHeldError,
        match=rf"publication is held since .* by a rollback to build {b}: release it with `rag-pipeline rollback",
    ):
        run_chain(root.settings(C))
    assert root.served == b
    assert release_hold(root.storage) is True
    assert read_hold(root.storage) is None
    assert release_hold(root.storage) is False
    d = root.publish(D)
    assert root.served == d
    now = published(root.storage)
    assert now is not None and not now.rolled_back
    assert rollback(root.storage).build == b


def test_repeated_rollbacks_go_further_back_and_never_forth(abc: Abc) -> None:
    root, a, b, c = abc
    assert rollback(root.storage).build == b
    assert rollback(root.storage).build == a
    with pytest.raises(IndexNotFoundError, match="no earlier published build is kept"):
        rollback(root.storage)
    assert rollback(root.storage, c).build == c, "forth only by name"
    assert rollback(root.storage).build == b
    assert rollback(root.storage, b).build == b
    assert rollback(root.storage).build == a


def test_a_rollback_after_a_build_came_back(root: Root) -> None:
    """A is published, B, then A again by a run: the one before is B."""
    a, b, back = root.publish(A), root.publish(B), root.publish(A)
    assert a == back
    assert rollback(root.storage).build == b


def test_a_rollback_to_a_named_build(abc: Abc) -> None:
    root, a, _b, c = abc
    assert rollback(root.storage, a[:8]).build == a
    assert rollback(root.storage, c).build == c
    with pytest.raises(IndexNotFoundError, match="build 'zzz' does not exist"):
        rollback(root.storage, "zzz")


def test_a_rollback_to_the_present_build_holds_it(root: Root) -> None:
    a = root.publish(A)
    # Other settings were tried on the same build and blocked; what is served did pass.
    with pytest.raises(BuildBlockedError):
        run_chain(root.settings({"gate": {"min_recall": 1.0}}))
    before = published(root.storage)
    assert rollback(root.storage, a) == before == published(root.storage)
    hold = read_hold(root.storage)
    assert hold is not None and hold["build"] == a


def test_nothing_to_roll_back(root: Root) -> None:
    with pytest.raises(
        IndexNotFoundError, match=r"nothing is published in .*: there is nothing to roll back"
    ):
        rollback(root.storage)
    root.publish(A)
    with pytest.raises(
        IndexNotFoundError, match=r"no earlier published build is kept in .*publication\.keep"
    ):
        rollback(root.storage)
    root.blocked()
    with pytest.raises(IndexNotFoundError, match="no earlier published build is kept"):
        rollback(root.storage)
    assert read_hold(root.storage) is None


def test_a_blocked_build_cannot_be_rolled_back_to(root: Root) -> None:
    a = root.publish(A)
    blocked = root.blocked()
    with pytest.raises(BuildBlockedError, match=f"build {blocked} is blocked by the gate: recall_floor: "):
        rollback(root.storage, blocked)
    unscored = run_chain(root.settings(D), until="candidate_index")["candidate_index"].result.build.id
    with pytest.raises(BuildBlockedError, match=f"build {unscored} has no receipt"):
        rollback(root.storage, unscored)
    assert (root.served, read_hold(root.storage)) == (a, None)


@pytest.mark.parametrize("what", ["build", "evaluation"])
def test_a_damaged_build_cannot_be_rolled_back_to(abc: Abc, what: str) -> None:
    root, _a, b, c = abc
    error: type[Exception]
    if what == "build":
        (root.storage.root / "builds" / b / "documents.parquet").unlink()
        error, message = DamagedBuildError, f"build {b}: documents.parquet is missing"
    else:
        (report,) = (root.storage.root / "evaluations" / b).glob("*/evaluation.json")
        report.write_text("{}")
        error, message = BuildBlockedError, f"the evaluation of build {b} is missing or was changed"
    with pytest.raises(error, match=message):
        rollback(root.storage)
    assert (root.served, read_hold(root.storage)) == (c, None)


def test_publish_writes_nothing_while_held(candidate: tuple[Storage, Build, Receipt]) -> None:
    storage, build, receipt = candidate
    rollback(storage, build.id)
    with pytest.raises(PublicationHeldError):
        publish(storage, replace(receipt, evaluation="0" * 16))
    now = published(storage)
    assert now is not None and now.evaluation == receipt.evaluation


# -- pruning ------------------------------------------------------------------------------------------------


def test_old_builds_go_and_the_newest_stay(abc: Abc) -> None:
    root, a, b, c = abc
    done = run_chain(root.settings(D, {"publication": {"keep": 2}}))["published_index"].result
    d = done.published.build
    assert done.pruned == [a]
    assert root.kept == {b, c, d}
    assert not (root.storage.root / "evaluations" / a).exists()
    assert rollback(root.storage).build == c
    assert rollback(root.storage).build == b
    with pytest.raises(IndexNotFoundError, match="no earlier published build is kept"):
        rollback(root.storage)


def test_published_ones_are_kept_before_blocked_ones(abc: Abc) -> None:
    root, a, b, c = abc
    blocked = root.blocked()
    assert prune(root.storage, keep=2) == [], "the candidate is kept, to be looked at"
    d = root.publish(D, {"publication": {"keep": 9}})
    assert prune(root.storage, keep=3) == [blocked]
    assert root.kept == {a, b, c, d}


def test_the_held_build_and_the_candidate_are_kept(abc: Abc) -> None:
    root, a, b, c = abc
    rollback(root.storage, a)
    candidate = run_chain(root.settings(D), until="candidate_index")["candidate_index"].result.build.id
    assert prune(root.storage, keep=1) == [b]
    assert root.kept == {a, c, candidate}
    assert root.served == a


def test_tables_that_nothing_names_go(root: Root) -> None:
    root.publish(A)
    tables = root.storage.root / "tables"
    before = {p.name for p in tables.glob("bm25_statistics/*")}
    root.publish(B)
    after = {p.name for p in tables.glob("bm25_statistics/*")}
    assert len(before) == len(after) == 3
    assert not before & after
    for name in ("chunks", "chunk_embeddings", "bm25_statistics"):
        handle = root.storage.read_handle(name)
        assert handle is not None
        assert all(root.storage.path(file).is_file() for file in handle.files.values())


def test_a_reader_goes_on_reading_what_is_pruned(abc: Abc) -> None:
    root, _a, _b, c = abc
    with open_index(root.settings(A)) as index:
        before = index.search("when is a pad replaced?")
        places = list(index.iter_chunks())
        d = root.publish(D)
        prune(root.storage, keep=0)
        assert root.kept == {d}
        assert index.search("when is a pad replaced?") == before
        assert index.search("parking fines", mode="bm25").hits[0].document_id == "refunds.md"
        assert list(index.iter_chunks()) == places
        assert index.build == c
    with open_index(root.settings(A)) as now:
        assert now.build == d


def test_the_pointer_is_replaced_in_one_step(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that is killed before the switch leaves the old build to readers."""
    a = root.publish(A)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    receipt = newest_receipt(root.storage, a)
    assert receipt is not None
    with pytest.raises(KeyboardInterrupt):
        publish(root.storage, replace(receipt, evaluation="0" * 16))
    monkeypatch.undo()
    assert root.served == a
    assert json.loads((root.storage.root / "published.json").read_text())["build"] == a
    assert find_build(root.storage, a).id == a
