"""Words, and groups of lines."""

from bisect import bisect_left

from nmt.insight.sentences import bare_words, group_names, words


def test_words_are_split_at_spaces_or_are_characters() -> None:
    assert words(" a big dog.") == ["a", "big", "dog."]
    assert words("我喜欢茶") == "我喜欢茶"
    assert bare_words("„Hello“, said O'Neil - 3.5 times!", spaced=True) == ["hello", "said", "o'neil", "3.5", "times"]
    assert bare_words("他说：好。", spaced=False) == ["他", "说", "好"]


def test_every_value_has_a_group() -> None:
    names = group_names((0, 1, 4), 0)
    assert names == ["0", "1", "2 to 4", "5 or more"]
    assert [names[bisect_left((0, 1, 4), n)] for n in (0, 1, 2, 4, 5)] == ["0", "1", "2 to 4", "2 to 4", "5 or more"]
