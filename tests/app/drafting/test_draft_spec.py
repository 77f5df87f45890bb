"""Short names of drafters mean models of the target's family."""

from pathlib import Path

import pytest

from app.drafting.draft_spec import parse
from app.drafting.drafter_spec import (
    Children,
    Composition,
    NodeKind,
    PathsSettings,
    TreeSettings,
    composed,
)
from app.paths import Paths
from backends.base import UsageError
from models.reference import HubReference, Reference


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "config", tmp_path / "data", tmp_path / "cache")


@pytest.mark.parametrize(
    ("target", "alias", "model"),
    [
        ("llama3.1-8b", "1b", "llama3.2-1b"),
        ("Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf", "1b", "llama3.2-1b"),
        ("Qwen_Qwen3-8B-Q4_K_M.gguf", "0.6b", "qwen3-0.6b"),
        ("gemma3-4b", "1b", "gemma3-1b"),
        ("llama3.1-8b", "124m", "gpt2-124m"),
        ("mine.gguf", "124m", "gpt2-124m"),
        ("mine.gguf", "llama3.2-1b", "llama3.2-1b"),
    ],
)
def test_a_short_name_is_of_the_targets_family(
    paths: Paths, target: str, alias: str, model: str
) -> None:
    reference = Reference(target, Path("/models") / target)
    (node,) = parse(alias, paths, reference).nodes
    assert node.name == alias
    assert isinstance(node.reference, HubReference)
    assert node.reference.name == model


def test_a_short_name_of_an_unknown_family_brings_the_nearest(paths: Paths) -> None:
    with pytest.raises(UsageError, match="Nearest"):
        parse("0.6b", paths, Reference("mine.gguf", Path("mine.gguf")))


def test_a_drafter_of_the_family_that_was_fetched_is_a_file(paths: Paths) -> None:
    paths.models.mkdir(parents=True)
    file = paths.models / "Llama-3.2-1B-Instruct-Q4_K_M.gguf"
    file.write_bytes(b"GGUF")
    (node,) = parse("1b", paths, Reference("llama3.1-8b", Path("x.gguf"))).nodes
    assert node.reference == Reference("llama3.2-1b", file)


def test_a_head_is_what_the_catalogue_names_until_the_model_is_here(paths: Paths) -> None:
    (own,) = parse("MTP", paths, Reference("qwen3.5-9b", Path("x.gguf"))).nodes
    assert (own.kind, own.name, own.reference) == (NodeKind.MTP, "mtp", None)
    (dflash,) = parse("dflash", paths, Reference("qwen3.8-27b", Path("x.gguf"))).nodes
    assert isinstance(dflash.reference, HubReference)
    assert dflash.reference.repository == "z-lab/Qwen3.8-27B-DFlash2-GGUF"
    assert dflash.reference.file == "Qwen3.8-27B-DFlash2-Q4_K_M.gguf"
    (other,) = parse("dspark", paths, Reference("qwen3.8-27b", Path("x.gguf"))).nodes
    assert other.reference is None, "it is for MLX"
    paths.models.mkdir(parents=True)
    (folder,) = parse("dspark", paths, Reference("qwen3.8-27b", paths.models)).nodes
    repository = "RedHatAI/Qwen3.8-27B-speculator.dspark"
    assert folder.reference == HubReference(repository, repository)


def test_the_file_of_a_head_can_be_named(paths: Paths) -> None:
    file = paths.models / "mtp-Some.gguf"
    paths.models.mkdir(parents=True)
    file.touch()
    (head,) = parse(f"mtp:{file}", paths).nodes
    assert (head.kind, head.reference) == (NodeKind.MTP, Reference("mtp-Some.gguf", file))
    (tree,) = parse("tree(eagle3):nodes=4,depth=2", paths).nodes
    assert tree.parts[0].kind is NodeKind.EAGLE3
    for wrong in ("mtp:", "mtp:no-such-file.gguf", "mtp,lookup,mtp"):
        with pytest.raises(UsageError):
            parse(wrong, paths)


def test_a_drafter_is_called_what_the_user_knows_it_by(paths: Paths) -> None:
    file = paths.models / "small.gguf"
    paths.models.mkdir(parents=True)
    file.touch()
    (own,) = parse("self:q4_0", paths).nodes
    (other,) = parse(str(file), paths).nodes
    assert own.known_as == "the self-drafter"
    assert other.known_as == "small"


def test_settings_after_commas_belong_to_the_drafter_before_them(paths: Paths) -> None:
    nodes = parse("jacobi,Lookahead:W=3,n=4, g=2,lookup", paths).nodes
    assert [(node.kind, node.settings) for node in nodes] == [
        (NodeKind.JACOBI, ""),
        (NodeKind.LOOKAHEAD, "w=3,n=4, g=2"),
        (NodeKind.LOOKUP, ""),
    ]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("lookahead:w=0", "1 or more"),
        ("lookahead:3", "not one of w=N"),
        ("lookahead:w=3,w=4", "each once"),
        ("lookahead:w=99", "= 204 tokens, and may take at most 63"),
        ("lookahead:w=20,n=3,g=20", "= 80 tokens"),
        ("lookahead:w=1000000", "at most 63"),
        ("jacobi:3", "jacobi takes no settings"),
        ("NGRAM:3", "ngram takes no settings"),
        ("lookup,retrieval:", "retrieval takes no settings"),
        ("lookup,w=3", "no drafter w=3"),
        ("cascade", "two drafters or more"),
        ("vote:lookup", "two drafters or more"),
        ("cascade(self)", "two drafters or more"),
        ("vote(lookup)", "two drafters or more"),
        ("cascade(self,lookup)", "lookup is no model"),
        ("cascade(lookup,vote(lookup,self))", "is no model"),
        ("vote(lookup,lookup)", "twice"),
        ("self,cascade(lookup,self)", "names self twice"),
        ("cascade(lookup,self),vote(lookup,self)", "names self twice"),
        ("vote(self:q2_k,cascade(lookup,SELF:Q2_K))", "names self:q2_k twice"),
        ("cascade(lookup,off)", "contradicts"),
        ("cascade(lookup,", "brackets"),
        ("vote()", "gap"),
        ("tree(lookup)", "which is a model"),
        ("tree(self,self:q4_0)", "one drafter"),
        ("tree()", "gap"),
        ("paths(tree(self))", "which is a model"),
        ("vote(lookup,tree(self))", "drafts for the model itself"),
        ("cascade(tree(self:q4_0),self)", "drafts for the model itself"),
        ("tree(self):nodes=0", "nodes is 1 to 64"),
        ("tree(self):nodes=2,depth=3", "no deeper"),
        ("tree(self):width=2", "'width=2' is not one of"),
        ("tree(self):ngrams=20", "'ngrams=20' is not one of nodes=N, depth=N"),
        ("paths(self):k=1", "k is 2 to 16"),
        ("paths(self):k=2,k=3", "each once"),
    ],
)
def test_what_makes_no_drafter_is_refused_with_the_reason(
    paths: Paths, spec: str, why: str
) -> None:
    with pytest.raises(UsageError) as refused:
        parse(spec, paths)
    assert why in str(refused.value)


def test_the_largest_passes_that_are_measured_are_taken(paths: Paths) -> None:
    for spec in ("lookahead", "lookahead:w=13,n=2,g=3"):
        (node,) = parse(spec, paths).nodes
        assert node.name == spec


@pytest.mark.parametrize("spec", ["lookup,(self", "lookup),self", "lookup:3", "(lookup,self)", ","])
def test_what_cannot_be_read_is_refused(paths: Paths, spec: str) -> None:
    with pytest.raises(UsageError):
        parse(spec, paths)


def test_a_word_is_read_in_any_case(paths: Paths) -> None:
    nodes = parse("Lookup, SELF:Q4_0", paths).nodes
    assert [(node.kind, node.name) for node in nodes] == [
        (NodeKind.LOOKUP, "lookup"),
        (NodeKind.SELF, "self:q4_0"),
    ]


def test_a_model_can_be_named_to_draft_on_the_processor(paths: Paths) -> None:
    target = Reference("llama3.1-8b", Path("/models/llama3.1-8b"))
    for spec in ("cpu:1b", "CPU: 1b"):
        (node,) = parse(spec, paths, target).nodes
        assert (node.kind, node.name, node.on_processor) == (NodeKind.MODEL, "cpu:1b", True)
        assert node.reference == parse("1b", paths, target).nodes[0].reference
    (whole,) = parse("cascade(lookup,cpu:1b)", paths, target).nodes
    assert whole.name == "cascade(lookup,cpu:1b)"
    assert [part.on_processor for part in whole.parts] == [False, True]


@pytest.mark.parametrize(
    "spec", ["cpu:", "cpu:self", "cpu:lookup", "cpu:tree(self)", "cpu:cpu:1b", "cpu:auto"]
)
def test_what_is_no_model_of_its_own_cannot_be_named_so(paths: Paths, spec: str) -> None:
    with pytest.raises(UsageError):
        parse(spec, paths, Reference("llama3.1-8b", Path("/models/llama3.1-8b")))


V = "vote(lookup,self:q2_k)"


@pytest.mark.parametrize(
    ("text", "kind", "parts", "settings"),
    [
        ("cascade(lookup,self)", NodeKind.CASCADE, ["lookup", "self"], ""),
        (
            "Cascade( lookup, self:q4_0 ,self )",
            NodeKind.CASCADE,
            ["lookup", "self:q4_0", "self"],
            "",
        ),
        ("vote(lookup,self)", NodeKind.VOTE, ["lookup", "self"], ""),
        (f"cascade({V},self)", NodeKind.CASCADE, [V, "self"], ""),
        ("tree(self)", NodeKind.TREE, ["self"], ""),
        ("Tree(self:q4_0):depth=2", NodeKind.TREE, ["self:q4_0"], "depth=2"),
        ("tree(self):nodes=4, depth=2", NodeKind.TREE, ["self"], "nodes=4, depth=2"),
        ("paths(self:skip=3):k=3,length=2", NodeKind.PATHS, ["self:skip=3"], "k=3,length=2"),
    ],
)
def test_a_spec_with_brackets_is_read(
    paths: Paths, text: str, kind: NodeKind, parts: list[str], settings: str
) -> None:
    before, node, after = parse(f"lookup,{text},ngram", paths).nodes
    assert (before.kind, node.kind, after.kind) == (NodeKind.LOOKUP, kind, NodeKind.NGRAM)
    assert [part.name for part in node.parts] == parts
    assert node.settings == settings
    assert node.name == f"{kind}({','.join(parts)})" + (f":{settings}" if settings else "")


def test_settings_left_out_are_the_usual_ones() -> None:
    assert TreeSettings.parse("") == TreeSettings()
    assert TreeSettings.parse("children=drawn,nodes=4").children is Children.DRAWN
    assert PathsSettings.parse("k=4") == PathsSettings(4)


def test_an_id_is_made_of_the_ids_of_the_parts_and_the_settings() -> None:
    assert composed(NodeKind.VOTE, ["lookup", "1f2e"]) == "vote(lookup,1f2e)"
    assert composed(NodeKind.TREE, ["1f2e"], "depth=2") == "tree(1f2e):depth=2"


def test_the_parts_of_a_composition_do_not_change_its_kind() -> None:
    """A model may be called as a kind of drafter is."""
    composition = Composition(NodeKind.CASCADE, ("lookup",))
    assert composition.of("self") == "cascade(lookup,self)"
    assert composition.of("cascade") == "cascade(lookup,cascade)"
