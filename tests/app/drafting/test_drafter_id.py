"""Ids of composed drafters, under which files from earlier versions keep what was learned."""

from app.drafting.drafter_spec import Composition, NodeKind, composed


def test_an_id_is_made_of_the_ids_of_the_parts_and_the_settings() -> None:
    assert composed(NodeKind.VOTE, ["lookup", "1f2e"]) == "vote(lookup,1f2e)"
    assert composed(NodeKind.TREE, ["1f2e"], "depth=2") == "tree(1f2e):depth=2"


def test_the_parts_of_a_composition_do_not_change_its_kind() -> None:
    """A model may be called as a kind of drafter is."""
    composition = Composition(NodeKind.CASCADE, ("lookup",))
    assert composition.of("self") == "cascade(lookup,self)"
    assert composition.of("cascade") == "cascade(lookup,cascade)"
