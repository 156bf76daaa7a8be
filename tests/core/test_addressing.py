"""Which client a question of the server is for: the one that caused it, or nobody."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from supervisor.core.addressing import NOBODY, SEVERAL, choose_client

some = st.frozensets(st.integers(1, 5))


@pytest.mark.parametrize(
    ("attached", "calling", "chosen"),
    [
        ({1}, set[int](), 1),
        ({1}, {1}, 1),
        ({1, 2}, {2}, 2),
        ({1, 2}, set[int](), SEVERAL),
        ({1, 2, 3}, {1, 2}, SEVERAL),
        (set[int](), set[int](), NOBODY),
    ],
)
def test_the_only_one_attached_or_the_only_one_calling(
    attached: set[int], calling: set[int], chosen: int | str
) -> None:
    """Source: design section 9."""
    assert choose_client(attached, calling) == chosen


@given(attached=some, data=st.data())
def test_a_question_never_reaches_one_of_two_that_could_be_meant(
    attached: frozenset[int], data: st.DataObject
) -> None:
    """An answer of somebody else's would cross sessions."""
    calling = data.draw(st.frozensets(st.sampled_from(sorted(attached)))) if attached else set()
    chosen = choose_client(attached, calling)
    if isinstance(chosen, int):
        assert chosen in attached
        assert attached == {chosen} or calling == {chosen}
    else:
        assert len(attached) != 1
        assert len(calling) != 1
