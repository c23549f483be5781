"""The one door to an index: what may be named, and what is refused in words."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rag_pipeline.retrieval.opening as opening
from rag_pipeline import open_index
from rag_pipeline.core.errors import (
    DamagedBuildError,
    EncoderMismatchError,
    EncoderNotFoundError,
    IndexNotFoundError,
    RagPipelineError,
    SettingsError,
    StorageError,
)
from rag_pipeline.core.storage import Storage
from rag_pipeline.index.builds import Build, find_build, list_builds
from rag_pipeline.index.publish import published as read_published
from rag_pipeline.settings import Settings
from rag_pipeline_tests.conftest import MakeSettings, run_chain


def build_of(settings: Settings) -> Build:
    now = read_published(Storage(settings.storage_root))
    assert now is not None
    return find_build(Storage(settings.storage_root), now.build)


def settings_file(folder: Path, settings: Settings) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "rag_pipeline.toml"
    file.write_text(
        f"[storage]\nroot = '{settings.storage.root}'\n[embedding]\nmodel = '{settings.embedding.model}'\n"
        "[source]\nurl_template = 'https://kb/{document_id}'\n"
    )
    return file


# -- what may be named --------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["settings", "file", "folder", "nothing", "root", "build", "text"])
def test_the_ways_to_name_an_index(
    published: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    file = settings_file(tmp_path / "project", published)
    monkeypatch.chdir(file.parent)
    build = build_of(published)
    what: Any = {
        "settings": published,
        "file": file,
        "folder": file.parent,
        "nothing": None,
        "root": published.storage_root,
        "build": build.folder,
        "text": str(published.storage_root),
    }[named]
    with open_index(what) as index:
        assert index.build == build.id
        assert index.serving.threshold == 2.0
        (hit,) = index.search("green button", mode="bm25").hits
        assert hit.document_id == "docks/power.md"
        with_link = named in ("file", "folder", "nothing")
        assert (hit.url is not None) is with_link
        assert index.stamp["build"] == build.id
        assert index.stamp["embedding"]["name"] == "tiny-0"
        assert index.stamp["serving"]["mode"] == "hybrid"
        if named != "build":
            assert index.stamp["status"] == "scored" and index.stamp["scored"] is True
            assert index.stamp["published_at"]


def test_a_build_is_named_by_a_relative_path(published: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    build = build_of(published)
    for here, path in (
        (build.folder.parent, build.id),
        (build.folder, "."),
        (build.folder.parent.parent, f"builds/{build.id}"),
    ):
        monkeypatch.chdir(here)
        with open_index(path) as index:
            assert index.build == build.id
            assert index.serving.threshold == 2.0, "from its receipt"


def test_a_build_that_was_copied_elsewhere_opens_alone(published: Settings, tmp_path: Path) -> None:
    build = build_of(published)
    shutil.copytree(build.folder, tmp_path / "my copy")
    with open_index(tmp_path / "my copy") as index:
        assert index.build == build.id
        assert (index.serving.mode, index.serving.k, index.serving.threshold) == ("hybrid", 4, 0.675), (
            "defaults"
        )
        assert index.search("green button").hits


def test_a_candidate_that_is_not_published_opens_by_its_folder(warm_settings: MakeSettings) -> None:
    done = run_chain(warm_settings(), until="candidate_index")
    build = done["candidate_index"].result.build
    with open_index(build.folder) as index:
        assert index.search("green button", threshold=2).hits
    with pytest.raises(IndexNotFoundError, match=r"nothing is published in .*: run `rag-pipeline index`"):
        open_index(warm_settings())


def test_an_index_is_closed_by_its_block(published: Settings) -> None:
    with open_index(published) as index:
        pass
    with pytest.raises(RagPipelineError, match=f"the index of build {index.build} is closed: open it again"):
        index.search("pads")
    index.close()


# -- what is not there --------------------------------------------------------------------------------------


def test_nothing_is_there(tmp_path: Path, make_settings: MakeSettings) -> None:
    settings = make_settings()
    with pytest.raises(
        IndexNotFoundError, match=r"storage is not a storage root: run `rag-pipeline index`, or check"
    ):
        open_index(settings)
    with pytest.raises(IndexNotFoundError, match=r"is not a storage root"):
        open_index(tmp_path)
    assert not settings.storage_root.exists(), "looking makes nothing"
    Storage.create(settings.storage_root)
    with pytest.raises(IndexNotFoundError, match=r"nothing is published in .*status` tells more"):
        open_index(settings.storage_root)
    with pytest.raises(SettingsError, match=r"settings file .*none\.toml does not exist"):
        open_index(tmp_path / "none.toml")


def test_a_published_build_that_was_deleted(published_copy: Settings) -> None:
    build = build_of(published_copy)
    shutil.rmtree(build.folder)
    with pytest.raises(IndexNotFoundError, match=f"build '{build.id}' does not exist in .*: there are none"):
        open_index(published_copy)


def test_a_root_of_another_schema_version(published_copy: Settings) -> None:
    (published_copy.storage_root / "format.json").write_text('{"schema_version": 99}')
    with pytest.raises(StorageError, match="storage schema version 99, this release reads 1"):
        open_index(published_copy)


@pytest.mark.parametrize("name", ["vectors.npy", "index.duckdb", "stamp.json", "chunks.parquet"])
def test_a_build_that_lacks_a_file(published_copy: Settings, name: str) -> None:
    build = build_of(published_copy)
    (build.folder / name).unlink()
    for what in (published_copy, build.folder):
        with pytest.raises(DamagedBuildError, match=f"build {build.id}: {name} is missing: index again"):
            open_index(what)


def change_stamp(build: Build, change: Callable[[dict[str, Any]], None]) -> None:
    stamp = build.stamp
    change(stamp)
    (build.folder / "stamp.json").write_text(json.dumps(stamp))


@pytest.mark.parametrize(
    "change",
    [
        lambda stamp: stamp["embedding"].update(id="0" * 16),
        lambda stamp: stamp["embedding"].update(window=512),
        lambda stamp: stamp["chunking"].update(strategy="A"),
        lambda stamp: stamp.update(chunks=8),
    ],
    ids=["fingerprint", "window", "strategy", "chunks"],
)
def test_a_stamp_that_was_changed(published_copy: Settings, change: Callable[[dict[str, Any]], None]) -> None:
    build = build_of(published_copy)
    change_stamp(build, change)
    with pytest.raises(
        DamagedBuildError, match=f"build {build.id}: its id is not the hash of its tables and stamp"
    ):
        open_index(published_copy)


# -- encoders -----------------------------------------------------------------------------------------------


def test_another_encoder_is_refused_and_both_are_named(published: Settings, other_encoder: Path) -> None:
    stamped = build_of(published).stamp["embedding"]
    with pytest.raises(EncoderMismatchError) as error:
        open_index(published.replace(embedding={"model": str(other_encoder)}))
    message = str(error.value)
    for part in (
        "tiny-0",
        stamped["id"],
        "tiny-1",
        "vectors of two encoders are not comparable",
        "index again",
    ):
        assert part in message
    assert message.index("tiny-0") < message.index("the query encoder is tiny-1")


def test_the_same_name_with_other_weights_is_another_encoder(
    published: Settings, other_encoder: Path, tmp_path: Path
) -> None:
    shutil.copytree(other_encoder, tmp_path / "tiny-0")
    with pytest.raises(EncoderMismatchError, match=r"tiny-0 .* the query encoder is tiny-0 "):
        open_index(published.replace(embedding={"model": str(tmp_path / "tiny-0")}))


def test_the_same_encoder_in_another_folder_will_do(
    published: Settings, tiny_encoder: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_encoder, tmp_path / "tiny-0")
    with (
        open_index(published) as index,
        open_index(published.replace(embedding={"model": str(tmp_path / "tiny-0")})) as other,
    ):
        assert other.search("pads") == index.search("pads")


def test_an_encoder_that_is_not_on_this_machine(published: Settings) -> None:
    with pytest.raises(
        EncoderNotFoundError, match=r"embedding\.model = 'no/such-model' is not on this machine"
    ):
        open_index(published.replace(embedding={"model": "no/such-model"}))


def test_a_stamped_encoder_whose_folder_is_gone(
    warm_settings: MakeSettings, tiny_encoder: Path, tmp_path: Path
) -> None:
    model = tmp_path / "models" / "tiny-0"
    shutil.copytree(tiny_encoder, model)
    settings = warm_settings(embedding={"model": str(model)})
    run_chain(settings)
    shutil.rmtree(model.parent)
    with pytest.raises(EncoderNotFoundError, match=rf"embedding\.model = '{model}': no such folder"):
        open_index(settings.storage_root)
    with open_index(settings.replace(embedding={"model": str(tiny_encoder)})) as index:
        assert index.search("pads").hits


def test_a_fingerprint_that_is_not_the_hash_of_its_parts(published: Settings) -> None:
    from rag_pipeline.retrieval.search import check_encoder

    stamp = build_of(published).stamp
    stamp["embedding"]["window"] = 512
    with pytest.raises(DamagedBuildError, match="the stamped fingerprint is not the hash of its parts"):
        check_encoder(stamp, "tiny", stamp["embedding"]["id"])


# -- builds that come and go --------------------------------------------------------------------------------


def test_a_build_that_is_pruned_while_it_is_opened(
    warm_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pointer is read, then another build is published and the first one removed."""
    settings = warm_settings()
    run_chain(settings)
    first = build_of(settings)
    run_chain(warm_settings(bm25={"k1": 1.3}))
    storage = Storage(settings.storage_root)
    second = read_published(storage)
    assert second is not None and second.build != first.id
    shutil.rmtree(first.folder)
    late = replace(second, build=first.id)
    seen = iter([late])
    monkeypatch.setattr(opening, "published", lambda storage: next(seen, second))
    with open_index(settings) as index:
        assert index.build == second.build


def test_a_build_that_vanishes_at_every_attempt(
    published_copy: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = read_published(Storage(published_copy.storage_root))
    assert now is not None
    number = iter(range(1000))
    monkeypatch.setattr(opening, "published", lambda storage: replace(now, build=f"gone{next(number)}"))
    with pytest.raises(IndexNotFoundError, match="build 'gone"):
        open_index(published_copy)
    assert next(number) < 50, "it gives up"


def test_reading_leaves_the_storage_root_as_it_is(published_copy: Settings) -> None:
    def state() -> dict[str, int]:
        root = published_copy.storage_root
        return {str(p.relative_to(root)): p.stat().st_mtime_ns for p in root.rglob("*") if p.is_file()}

    before = state()
    with open_index(published_copy) as index:
        index.search("pads")
        index.context("pads")
    assert state() == before
    assert len(list_builds(Storage(published_copy.storage_root))) == 1


def test_a_root_that_may_only_be_read(published_copy: Settings) -> None:
    root = published_copy.storage_root
    folders = [root, *(p for p in root.rglob("*") if p.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        with open_index(published_copy) as index:
            assert index.search("pads").hits
    finally:
        for folder in folders:
            folder.chmod(0o755)


def test_opening_loads_no_torch_until_the_first_query(published: Settings, tmp_path: Path) -> None:
    file = settings_file(tmp_path, published)
    code = (
        "import sys; from rag_pipeline import open_index; index = open_index(sys.argv[1]); "
        "assert index.stamp['embedding']['name'] == 'tiny-0'; assert index.modes; "
        "heavy = {'torch', 'transformers', 'sentence_transformers', 'dagster', 'matplotlib', 'scipy'}; "
        "assert not heavy & set(sys.modules), heavy & set(sys.modules); "
        "assert index.search('pads').hits; assert 'torch' in sys.modules and 'dagster' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
