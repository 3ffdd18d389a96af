from darkroom.terminal.numbers import count_of, time_of


def test_large_numbers_have_the_letter_of_their_thousands():
    assert [count_of(n) for n in (12, 1_500, 2.5e9)] == ["12", "1.5 k", "2.5 G"]


def test_durations_have_their_units():
    seconds = (0.4, 1.25, 59.6, 80, 599, 1051, 3599.7, 3900, 11_400, 93_784, 180_000)
    assert [time_of(n) for n in seconds] == [
        *("0.4 s", "1.2 s", "1 min 00 s", "1 min 20 s", "9 min 59 s", "17 min"),
        *("1 h 00 min", "1 h 05 min", "3 h 10 min", "1 d 02 h", "2 d 02 h"),
    ]
