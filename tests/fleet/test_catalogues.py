"""Entry names, and merging one catalogue over another."""

from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fleet.catalogues import Catalogue, Entry, folded
from fleet.documents import parse_document, read_model
from fleet.errors import DocumentError, UnknownNameError


class Fruit(Entry):
    """A test entry."""

    weight_g: int = 0


class Orchard(Catalogue[Fruit]):
    """A test catalogue."""

    kind: ClassVar[str] = "fruit"
    field: ClassVar[str] = "fruits"

    fruits: tuple[Fruit, ...]


def orchard(*fruits: Fruit) -> Orchard:
    return Orchard(fruits=fruits)


@st.composite
def orchards(draw: st.DrawFn, *, aliases: bool = True) -> Orchard:
    """Names from few letters, so that they collide: upper case for names, lower case for aliases."""
    names = draw(st.lists(st.sampled_from("ABCD"), unique=True))
    free = draw(st.permutations("wxyz")) if aliases else []
    fruits = []
    for name in names:
        taken, free = free[: draw(st.integers(0, 1))], free[1:]
        fruits.append(Fruit(name=name, aliases=tuple(taken), weight_g=draw(st.integers(0, 3))))
    return orchard(*fruits)


class TestNames:
    @pytest.mark.parametrize("spelling", ["Red Apple", "red-apple", "RED_APPLE", "Red_Apple"])
    def test_case_spaces_and_underscores_of_names_are_ignored(self, spelling: str) -> None:
        apple = Fruit(name="Red-Apple")
        assert orchard(apple).get(spelling) is apple

    def test_an_entry_is_found_by_its_alias(self) -> None:
        apple = Fruit(name="apple", aliases=("malus",))
        assert orchard(Fruit(name="pear"), apple).get("Malus") is apple

    def test_an_unknown_name_is_reported_with_the_nearest_names(self) -> None:
        with pytest.raises(UnknownNameError, match="unknown fruit 'appel'; nearest: apple") as raised:
            orchard(Fruit(name="apple"), Fruit(name="kiwi")).get("appel")
        assert raised.value.nearest == ("apple",)

    @pytest.mark.parametrize(
        "second",
        [Fruit(name="APPLE"), Fruit(name="malus"), Fruit(name="pear", aliases=("Malus",))],
        ids=["name", "alias", "both"],
    )
    def test_two_entries_cannot_share_a_name(self, second: Fruit) -> None:
        with pytest.raises(ValidationError, match="must be unique, but already names 'apple'"):
            orchard(Fruit(name="apple", aliases=("malus",)), second)

    def test_an_alias_may_repeat_the_name_of_its_entry(self) -> None:
        assert orchard(Fruit(name="apple", aliases=("Apple",))).get("apple").weight_g == 0

    @pytest.mark.parametrize("name", ["", " apple", "apple\n"])
    def test_an_empty_or_padded_name_is_refused(self, name: str) -> None:
        with pytest.raises(ValidationError):
            Fruit(name=name)

    def test_a_duplicate_name_in_a_file_is_reported_with_its_line(self) -> None:
        text = "fruits:\n  - name: apple\n  - name: pear\n    aliases: [apple]\n"
        with pytest.raises(DocumentError, match=r"mine\.yaml: line 3: fruits\[1\]: 'apple' must be unique"):
            read_model(parse_document(text, name="mine.yaml"), Orchard)


class TestOverlay:
    @given(base=orchards())
    def test_merging_a_catalogue_over_itself_changes_nothing(self, base: Orchard) -> None:
        assert base.overlaid(base) == base

    @given(base=orchards())
    def test_an_empty_catalogue_is_neutral(self, base: Orchard) -> None:
        assert base.overlaid(orchard()) == base == orchard().overlaid(base)

    @given(base=orchards(), top=orchards())
    def test_the_later_entry_wins_and_no_entry_is_lost(self, base: Orchard, top: Orchard) -> None:
        merged = base.overlaid(top)
        assert {fruit.name for fruit in merged.fruits} == {fruit.name for fruit in (*base.fruits, *top.fruits)}
        for fruit in top.fruits:
            assert all(merged.get(name) == fruit for name in fruit.folded_names)

    @given(base=orchards(), top=orchards())
    def test_merging_is_idempotent(self, base: Orchard, top: Orchard) -> None:
        assert base.overlaid(top).overlaid(top) == base.overlaid(top)

    @given(first=orchards(aliases=False), second=orchards(aliases=False), third=orchards(aliases=False))
    def test_merging_is_associative(self, first: Orchard, second: Orchard, third: Orchard) -> None:
        assert first.overlaid(second).overlaid(third) == first.overlaid(second.overlaid(third))

    def test_a_claimed_alias_moves_to_the_new_entry(self) -> None:
        base = orchard(Fruit(name="apple", aliases=("best", "malus")))
        merged = base.overlaid(orchard(Fruit(name="pear", aliases=("Best",))))
        assert merged.get("best").name == "pear"
        assert merged.get("apple").aliases == ("malus",)

    def test_a_replacement_may_spell_the_name_differently(self) -> None:
        merged = orchard(Fruit(name="apple")).overlaid(orchard(Fruit(name="Apple", weight_g=9)))
        assert [fruit.weight_g for fruit in merged.fruits] == [9]

    def test_an_alias_cannot_take_the_name_of_another_entry(self) -> None:
        with pytest.raises(DocumentError, match="'apple' is the name of another entry"):
            orchard(Fruit(name="apple")).overlaid(orchard(Fruit(name="pear", aliases=("apple",))))

    def test_merging_does_not_change_the_merged_catalogues(self) -> None:
        base = orchard(Fruit(name="apple", aliases=("best",)))
        base.overlaid(orchard(Fruit(name="pear", aliases=("best",))))
        assert base.get("best").name == "apple"


@given(name=st.text())
def test_folding_is_idempotent(name: str) -> None:
    assert folded(folded(name)) == folded(name)
