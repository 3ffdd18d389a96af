"""A consumer checks the manifest before it does any work."""

import pytest

from darkroom.artifacts.manifest import (
    ArtifactError,
    check_file,
    check_seal,
    file_hashes,
    manifest_hash,
    open_artifact,
    read_manifest,
    write_manifest,
)


@pytest.fixture
def artifact(tmp_path):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "weights").write_text("1")
    (tmp_path / "config").write_text("2")
    write_manifest(tmp_path, "model", width=3, files=file_hashes(tmp_path))
    return tmp_path


def test_facts_return(artifact):
    manifest = open_artifact(artifact, "model")
    assert manifest["width"] == 3 and set(manifest["files"]) == {"raw/weights", "config"}


def test_equal_artifacts_have_one_identity(artifact, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    write_manifest(other, "model", files=file_hashes(artifact), width=3)
    assert manifest_hash(other) == manifest_hash(artifact)


def test_another_kind_is_refused(artifact):
    with pytest.raises(ArtifactError, match=r"manifest\.json describes 'model' in format 2, but 'shards'"):
        read_manifest(artifact, "shards")


def test_another_format_is_refused(artifact):
    path = artifact / "manifest.json"
    path.write_text(path.read_text().replace('"format": 2', '"format": 1'))
    with pytest.raises(ArtifactError, match=r"in format 1, but 'model' in format 2 is needed.*dvc repro"):
        read_manifest(artifact, "model")


def test_a_missing_and_a_damaged_manifest_are_named(artifact):
    path = artifact / "manifest.json"
    path.write_text(path.read_text()[:20])
    with pytest.raises(ArtifactError, match=r"manifest\.json is damaged.*dvc checkout"):
        read_manifest(artifact, "model")
    path.unlink()
    with pytest.raises(ArtifactError, match=r"manifest\.json is missing: run `dvc repro`"):
        read_manifest(artifact, "model")


def test_a_changed_and_a_missing_file_are_named(artifact):
    (artifact / "raw" / "weights").write_text("3")
    with pytest.raises(ArtifactError, match=r"raw/weights is corrupted"):
        open_artifact(artifact, "model")
    (artifact / "raw" / "weights").unlink()
    with pytest.raises(ArtifactError, match=r"raw/weights is missing"):
        open_artifact(artifact, "model")


def test_check_file_accepts_what_was_recorded(artifact):
    check_file(artifact / "config", file_hashes(artifact)["config"])


def test_a_seal_holds_as_long_as_nothing_is_changed(tmp_path):
    write_manifest(
        tmp_path, "model", sums=[0.1, 1e300, -0.0], names={"b": "größer"}, numbers={10: 1, 9: 2}, shape=(1, 2)
    )
    check_seal(tmp_path)
    path = tmp_path / "manifest.json"
    content = path.read_bytes()
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
        with pytest.raises(ArtifactError, match=r"manifest\.json is damaged"):
            check_seal(tmp_path)
    path.write_bytes(content.replace(b"\n", b"\n\n", 1))  # the same values
    with pytest.raises(ArtifactError, match="damaged"):
        check_seal(tmp_path)
    path.write_text("[]")
    with pytest.raises(ArtifactError, match="damaged"):
        check_seal(tmp_path)
    path.unlink()
    with pytest.raises(ArtifactError, match="is missing"):
        check_seal(tmp_path)
