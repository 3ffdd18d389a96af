from darkroom.terminal.numbers import aligned, bytes_of


def test_columns_begin_or_end_together() -> None:
    rows = [("part", "images", "what"), ("a", "1,200", "left out"), ("longer", "3", "")]
    assert aligned(rows, left=(0, 2)) == ["part    images  what", "a        1,200  left out", "longer       3"]
    assert aligned([("a", "b")]) == ["a  b"]
    assert aligned([]) == []


def test_bytes_have_a_decimal_unit() -> None:
    assert [bytes_of(count) for count in (0, 999, 1500, 2.5e6, 1.3e9, 7e12)] == [
        *("0 B", "999 B", "1.5 kB", "2.5 MB", "1.3 GB", "7 TB")
    ]
