import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from darkroom.data.tars import DamagedTarError, Member, members
from darkroom.errors import DarkroomError
from data.making_tars import tar

FILES = {"one.txt": b"x" * 700, "two.jpg": b"", "three.json": b"{}" * 512}
LONG = "f" * 150 + "/" + "n" * 120 + ".jpg"


def listed(path: Path) -> list[Member]:
    return list(members(path, "some.tar"))


def by_tarfile(path: Path) -> list[Member]:
    with tarfile.open(path) as file:
        return [Member(m.name, m.offset_data, m.size) for m in file if m.isfile()]


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_are_those_of_tarfile(tmp_path: Path, format: int) -> None:
    names = (
        {**FILES, "größer.png": b"12"} if format == tarfile.USTAR_FORMAT else {**FILES, LONG: b"1", "größer.png": b"2"}
    )
    path = tar(tmp_path / "a.tar", names, format)
    assert listed(path) == by_tarfile(path)
    assert [member.name for member in listed(path)] == list(names)
    data = path.read_bytes()
    assert [data[m.offset : m.offset + m.size] for m in listed(path)] == list(names.values())


def test_a_folder_packed_from_within_has_no_dots_in_its_names(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "000.txt").write_text("caption")
    with tarfile.open(tmp_path / "b.tar", "w") as archive:  # as `tar cf b.tar .`: folders, and names that begin with ./
        archive.add(tmp_path / "sub", "./sub")
    assert [member.name for member in listed(tmp_path / "b.tar")] == ["sub/000.txt"]


def test_a_size_of_many_digits_is_read_as_tarfile_does(tmp_path: Path) -> None:
    """Above 8 GiB the size stands in an extended header; here it does so for a small file."""
    info = tarfile.TarInfo("big.bin")
    info.size, info.pax_headers = 600, {"size": "600", "comment": "=\n"}
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as file:
        file.addfile(info, io.BytesIO(b"y" * 600))
    assert listed(tmp_path / "a.tar") == by_tarfile(tmp_path / "a.tar")
    assert listed(tmp_path / "a.tar")[0].size == 600


# --- hostile ---


def with_member(change: Callable[[tarfile.TarInfo], None], data: bytes = b"") -> Callable[[Path], Path]:
    def make(path: Path) -> Path:
        with tarfile.open(path, "w") as file:
            for name in ("good.jpg", "bad"):
                info = tarfile.TarInfo(name)
                if name == "bad":
                    change(info)
                info.size = len(data)
                file.addfile(info, io.BytesIO(data))
        return path

    return make


def named(name: str) -> Callable[[Path], Path]:
    return with_member(lambda info: setattr(info, "name", name))


def typed(kind: bytes, target: str = "/etc/passwd") -> Callable[[Path], Path]:
    def change(info: tarfile.TarInfo) -> None:
        info.type, info.linkname = kind, target

    return with_member(change)


HOSTILE = {
    "/etc/cron.d/job": (named("/etc/cron.d/job"), "an absolute path"),
    "C:/job.jpg": (named("C:/job.jpg"), "an absolute path"),
    "../../job.jpg": (named("../../job.jpg"), "a path with `..`"),
    "a/../../job.jpg": (named("a/../../job.jpg"), "a path with `..`"),
    "..\\job.jpg": (named("..\\job.jpg"), "a path with `..`"),
    "f/../" + "n" * 200: (named("f/../" + "n" * 200), "a path with `..`"),  # in an extended header
    "bad": (typed(tarfile.SYMTYPE), "a symbolic link"),
    "x.pyd": (named("x.pyd"), "a pickle by its ending .pyd"),
    "x.tensor.PTH": (named("x.tensor.PTH"), "a pickle by its ending .pth"),
    "x.pickle.gz": (named("x.pickle.gz"), "a pickle by its ending .pickle"),
    "x.pkl": (named("x.pkl"), "a pickle"),
    "x.pt": (named("x.pt"), "a pickle"),
}
KINDS = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
    b"V": "of the unknown type",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_members_are_refused_by_shard_and_name(tmp_path: Path, name: str) -> None:
    make, what = HOSTILE[name]
    found = []
    with pytest.raises(DarkroomError) as caught:
        for member in members(make(tmp_path / "a.tar"), "some.tar"):
            found.append(member.name)
    assert f"some.tar: the member `{name}` is {what}" in str(caught.value)
    assert not isinstance(caught.value, DamagedTarError)  # never one that is left out and forgotten
    assert found == ["good.jpg"]


def test_links_and_paths_out_of_the_tar_are_left_unread_where_a_list_takes_them(tmp_path: Path) -> None:
    names = ["/etc/cron.d/job", "C:/job.jpg", "../../job.jpg", "..\\job.jpg", "bad"]
    for name in names:
        make, what = HOSTILE[name]
        unread: list[tuple[str, str]] = []
        assert [member.name for member in members(make(tmp_path / "a.tar"), "some.tar", unread)] == ["good.jpg"]
        assert unread == [(name, what)]
    with pytest.raises(DarkroomError, match=r"`x.pkl` is a pickle"):
        list(members(HOSTILE["x.pkl"][0](tmp_path / "a.tar"), "some.tar", []))


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_hard_links_have_the_bytes_of_the_member_that_they_name(tmp_path: Path, format: int) -> None:
    long = LONG if format != tarfile.USTAR_FORMAT else "f/a.jpg"
    path = tar(
        tmp_path / "a.tar", [("./a", b"1"), (long, b"2"), ("b", "a"), ("c", long), ("d", "./b"), ("e", b"3")], format
    )
    data = path.read_bytes()
    content = [(member.name, data[member.offset :][: member.size]) for member in listed(path)]
    assert content == [("a", b"1"), (long, b"2"), ("b", b"1"), ("c", b"2"), ("d", b"1"), ("e", b"3")]


@pytest.mark.parametrize("kind", KINDS)
def test_members_that_are_no_files_are_refused(tmp_path: Path, kind: bytes) -> None:
    with pytest.raises(DarkroomError, match=f"some.tar: the member `bad` is {KINDS[kind]}"):
        listed(typed(kind)(tmp_path / "a.tar"))


def test_sparse_members_of_pax_are_refused(tmp_path: Path) -> None:
    sparse = with_member(lambda info: setattr(info, "pax_headers", {"GNU.sparse.major": "1", "GNU.sparse.name": "x"}))
    with pytest.raises(DarkroomError, match="a sparse file"):
        listed(sparse(tmp_path / "a.tar"))


def test_an_extended_header_that_would_fill_the_memory_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 2**40
    path.write_bytes(header.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    with pytest.raises(DamagedTarError, match="the header of a member is damaged"):
        listed(path)


def test_endings_that_only_look_like_pickles_are_read(tmp_path: Path) -> None:
    names = {"000.pt.txt": b"uma menina", "000.npy": b"", "pkl/000.jpg": b"", "000.jpg.gz": b""}
    assert [member.name for member in listed(tar(tmp_path / "a.tar", names))] == list(names)


# --- damage ---


def damage(path: Path, pattern: str) -> list[str]:
    found = []
    with pytest.raises(DamagedTarError, match=pattern):
        for member in members(path, "some.tar"):
            found.append(member.name)
    return found


def test_a_flipped_header_byte_names_the_byte_and_what_is_before(tmp_path: Path) -> None:
    path = tar(tmp_path / "a.tar", FILES)
    data = bytearray(path.read_bytes())
    data[1536 + 5] ^= 64  # in the name of the second member
    path.write_bytes(data)
    assert len(by_tarfile(path)) == 1  # in silence
    pattern = r"at byte 1,536 of 10,240: the header of a member is damaged;.* can be read: 1$"
    assert damage(path, pattern) == ["one.txt"]


@pytest.mark.parametrize(
    ("cut", "what", "left"),
    [
        (0, "at byte 0 of 0: the file ends here without", 0),
        (1536, "at byte 1,536 of 1,536: the file ends here without the two blocks", 1),  # between two members
        (1536 + 100, "header of a member is damaged", 1),
        (512 + 300, r"the member `one.txt` of 700 bytes goes on past the end of the file", 0),
        (512 + 700, "at byte 1,536 of 1,212: the file ends here", 1),  # all of its bytes, not all of their block
        (3584 + 512, "ends within the two blocks of zeros", 3),
    ],
)
def test_cut_tars_are_damaged_wherever_they_are_cut(tmp_path: Path, cut: int, what: str, left: int) -> None:
    path = tar(tmp_path / "a.tar", FILES)
    assert listed(path)[-1] == Member("three.json", 2560, 1024)
    path.write_bytes(path.read_bytes()[:cut])
    assert len(damage(path, what)) == left


def test_what_comes_after_the_end_is_no_silence(tmp_path: Path) -> None:
    one, two = tar(tmp_path / "a.tar", FILES), tar(tmp_path / "b.tar", {"four.jpg": b""})
    one.write_bytes(one.read_bytes() + two.read_bytes())  # cat a.tar b.tar
    pattern = "at byte 10,240 of 20,480: there are bytes after the end of the archive.*: 3$"
    assert damage(one, pattern) == list(FILES)


def test_an_extended_header_without_its_member_is_damaged(tmp_path: Path) -> None:
    path = tar(tmp_path / "a.tar", {LONG: b""}, tarfile.PAX_FORMAT)
    data = path.read_bytes()
    for cut in (data[:1024] + bytes(1024), data[:600]):
        path.write_bytes(cut)
        damage(path, "at byte 0 of .*: the header of a member is damaged")


def test_a_negative_size_is_damaged(tmp_path: Path) -> None:
    in_gnu, in_pax = tarfile.TarInfo("a.jpg"), tarfile.TarInfo("a.jpg")
    in_gnu.size, in_pax.pax_headers = -512, {"size": "-1"}
    for data in (in_gnu.tobuf(tarfile.GNU_FORMAT), in_pax.tobuf(tarfile.PAX_FORMAT)):
        (tmp_path / "a.tar").write_bytes(data + bytes(1024))
        damage(tmp_path / "a.tar", "of -[0-9]+ bytes goes on past the end")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_truncation_and_no_flip_of_a_header_is_silent(tmp_path_factory: pytest.TempPathFactory, data) -> None:
    """Either it is said that the tar is damaged, or the same members are found."""
    folder = tmp_path_factory.getbasetemp()
    format = data.draw(st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT]))
    whole = tar(folder / "whole.tar", FILES, format)
    expected, content = listed(whole), bytearray(whole.read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))]
    else:
        headers = [member.offset - 512 for member in expected] + list(range(3584, len(content), 512))
        at = data.draw(st.sampled_from(headers)) + data.draw(st.integers(0, 511))
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    path = folder / "other.tar"
    path.write_bytes(content)
    found = []
    try:
        for member in members(path, "other.tar"):
            found.append(member)
    except DamagedTarError:
        assert found == expected[: len(found)]
    else:
        assert found == expected


@pytest.mark.parametrize(("ending", "kind"), [("gz", "gzip"), ("bz2", "bzip2"), ("xz", "xz")])
def test_compressed_tars_are_refused(tmp_path: Path, ending: str, kind: str) -> None:
    with tarfile.open(tmp_path / "a.tar", f"w:{ending}"):
        pass
    with pytest.raises(DarkroomError, match=rf"some.tar is compressed \({kind}\).*decompress it"):
        listed(tmp_path / "a.tar")
