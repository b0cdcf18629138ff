"""A transformer that reads strings: tokens, pooling, rates of its own, files."""

import copy
import pickle
import shutil
from functools import partial

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sklearn_xlc import MultiHeadClassifier, load, save
from sklearn_xlc.encoders import Transformer, TransformerEncoder
from sklearn_xlc.encoders.transformer import Tokens, import_text
from sklearn_xlc.heads import FlatHead
from sklearn_xlc.training import EncoderHead
from sklearn_xlc.training.optimizer import parameter_groups

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

TEXTS = ["a body of salt water", "water", "an animal that barks", "animal animal"] * 5
KINDS = ["water", "water", "animal", "animal"] * 5
WORDS = ["[PAD]", "[UNK]", "a", "an", "animal", "barks", "body", "of", "salt", "that", "water"]


def word_tokenizer():
    vocabulary = {word: i for i, word in enumerate(WORDS)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return made


def tiny_model(**params):
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 6}
    config = {"vocab_size": len(WORDS), "hidden_size": 8, "intermediate_size": 8, **sizes, **params}
    return transformers.BertModel(transformers.BertConfig(**config))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("transformer")
    tiny_model().save_pretrained(path)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer(), pad_token="[PAD]", unk_token="[UNK]"
    )
    fast.save_pretrained(path)
    return str(path)


@pytest.fixture
def encoder():
    return TransformerEncoder(tiny_model(), word_tokenizer()).eval()


def quick(encoder, **params):
    return MultiHeadClassifier(
        encoder=encoder, learning_rate=0.02, random_state=0, **{"max_epochs": 15, **params}
    )


# --- tokens and features ----------------------------------------------------------------------


def test_collate_pads_and_truncates(encoder):
    inputs = encoder.collate(["a water", "", "salt ünknown 水 a a a a a a"])
    assert inputs["input_ids"].tolist() == [
        [2, 10, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0],
        [8, 1, 1, 2, 2, 2],
    ]
    assert inputs["attention_mask"].sum(1).tolist() == [2, 1, 6]
    assert encoder.collate([""])["input_ids"].tolist() == [[0]]
    short = TransformerEncoder(tiny_model(), word_tokenizer(), max_length=2)
    assert short.collate(["a a a"])["input_ids"].shape == (1, 2)


def test_features_are_pooled_states_of_each_text_alone(encoder):
    texts = ["salt water", "", "a body of salt water", "animal"] * 40  # more than one part
    found = encoder(encoder.collate(texts))
    for text, row in zip(texts[:4], found[:4]):
        ids = torch.tensor([[WORDS.index(word) for word in text.split()] or [0]])
        states = encoder.model(input_ids=ids).last_hidden_state[0]
        torch.testing.assert_close(row, states.mean(0), rtol=1e-5, atol=1e-6)
        encoder.pooling = "cls"
        first = encoder(encoder.collate([text]))[0]
        encoder.pooling = "mean"
        torch.testing.assert_close(first, states[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found[4:8], found[:4])


def test_models_and_tokenizers_are_copied():
    model, tokenizer = tiny_model(), word_tokenizer()
    before = copy.deepcopy(model.state_dict()), tokenizer.to_str()
    clf = quick(Transformer(model, tokenizer, max_length=2)).fit(TEXTS, KINDS)
    assert tokenizer.to_str() == before[1]
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[0][name])
    trained = clf.net_.module_.encoder.model.state_dict()
    assert not torch.equal(trained["embeddings.word_embeddings.weight"], next(model.parameters()))


def test_arguments_are_checked(tmp_path):
    with pytest.raises(TypeError, match="model must be a folder, a name or .*, got int"):
        TransformerEncoder(3)
    with pytest.raises(ValueError, match="tokenizer is None"):
        TransformerEncoder(tiny_model())
    with pytest.raises(TypeError, match="tokenizer must be .*, got str"):
        TransformerEncoder(tiny_model(), "words")
    with pytest.raises(ValueError, match="pooling must be 'mean' or 'cls', got 'max'"):
        TransformerEncoder(tiny_model(), word_tokenizer(), pooling="max")
    with pytest.raises(ValueError, match="learning_rate must be finite and at least 0"):
        TransformerEncoder(tiny_model(), word_tokenizer(), learning_rate=-1.0)
    t5 = transformers.T5Config(vocab_size=11, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
    t5.decoder_start_token_id = 0
    t5 = transformers.T5Model(t5)
    with pytest.raises(ValueError, match=r"T5Model has a decoder.*get_encoder\(\)"):
        TransformerEncoder(t5, word_tokenizer())
    half = TransformerEncoder(t5.get_encoder(), word_tokenizer())
    assert half(half.collate(TEXTS[:3])).shape == (3, 8)


def test_a_missing_package_is_named():
    with pytest.raises(ImportError, match=r"no_such is missing.*pip install sklearn-xlc\[text\]"):
        import_text("no_such")


# --- training ---------------------------------------------------------------------------------


def test_groups_hold_every_trained_parameter_once(encoder):
    groups = encoder.parameter_groups()
    assert [(g["lr"], g["weight_decay"]) for g in groups] == [(1e-4, 0.01), (1e-4, 0.0)]
    held = [id(p) for g in groups for p in g["params"]]
    unread = set(encoder.model.pooler.parameters())
    expected = [id(p) for p in encoder.model.parameters() if p not in unread]
    assert sorted(held) == sorted(expected)
    assert all(p.ndim > 1 for p in groups[0]["params"])
    assert all(p.ndim == 1 for p in groups[1]["params"])


def test_the_transformer_has_a_rate_of_its_own():
    encoder = TransformerEncoder(tiny_model(), word_tokenizer(), learning_rate=3e-3)
    head = FlatHead(encoder.n_outputs, 2, multilabel=False)
    groups = parameter_groups(EncoderHead(encoder, head), "adam", 0.02, 0.5)
    found = {id(p): (g["lr"], g["weight_decay"]) for g in groups for p in g["params"]}
    for parameter in encoder.model.embeddings.parameters():
        assert found[id(parameter)] == (3e-3, 0.01 if parameter.ndim > 1 else 0.0)
    for parameter in head.parameters():
        assert found[id(parameter)] == (0.02, 0.5 if parameter.ndim > 1 else 0.0)


def test_a_frozen_transformer_stays_as_it_was(folder):
    clf = quick(Transformer(folder, learning_rate=0.0), max_epochs=80)
    clf.fit(TEXTS, KINDS)
    encoder, expected = clf.net_.module_.encoder, tiny_model().state_dict()
    for name, tensor in encoder.model.state_dict().items():
        assert torch.equal(tensor, expected[name])
    assert encoder.parameter_groups() == []
    assert not encoder.train().model.training  # no dropout
    assert clf.n_parameters_ == sum(p.numel() for p in clf.net_.module_.head.parameters())
    assert clf.score(TEXTS, KINDS) == 1


def test_strings_in(folder):
    clf = quick(Transformer(folder, learning_rate=0.01))
    clf.fit(TEXTS, KINDS)
    assert clf.predict(["salt water", "an animal"]).tolist() == ["water", "animal"]
    expected = clf.decision_function(TEXTS)
    for make in (tuple, np.array, pd.Series, pl.Series, lambda t: np.array(t, dtype=object)):
        np.testing.assert_array_equal(clf.decision_function(make(TEXTS)), expected)
    again = clone(clf).fit(pl.Series(TEXTS), KINDS)
    np.testing.assert_array_equal(again.decision_function(TEXTS), expected)
    assert np.isfinite(clf.decision_function(["", "水 \x00 ünï"])).all()
    with pytest.raises(ValueError, match=r"X\[1\] is 3.0 of type float"):
        clf.predict(["water", 3.0])
    tags = [[kind, "all"] for kind in KINDS]
    sets = clone(clf).fit(TEXTS, tags).predict(["water"])
    assert sorted(sets[0]) == ["all", "water"]


def test_search_pipeline_and_partial_fit(folder):
    small = Transformer(folder)
    model = make_pipeline(FunctionTransformer(), quick(small, max_epochs=3))
    grid = {"multiheadclassifier__encoder__learning_rate": [0.0, 1e-2]}
    search = GridSearchCV(model, grid, cv=2, error_score="raise").fit(TEXTS, KINDS)
    assert search.best_score_ > 0.5
    clf = quick(small)
    for _ in range(10):
        clf.partial_fit(TEXTS, KINDS, classes=["animal", "water"])
    assert clf.score(TEXTS, KINDS) == 1


# --- files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["folder", "part", "partial", "instance"])
def test_saved_and_cloned(given, folder, tmp_path):
    made = {
        "folder": Transformer(folder, learning_rate=0.01),
        "part": Transformer(tiny_model(), word_tokenizer()),
        "partial": partial(TransformerEncoder, tiny_model(), word_tokenizer()),
        "instance": TransformerEncoder(tiny_model(), word_tokenizer()),
    }[given]
    clf = clone(quick(made, max_epochs=2)).fit(TEXTS, KINDS)
    expected = clf.decision_function(TEXTS)
    joblib.dump(clf, tmp_path / "clf")
    for loaded in (pickle.loads(pickle.dumps(clf)), joblib.load(tmp_path / "clf", mmap_mode="r")):
        np.testing.assert_array_equal(loaded.decision_function(TEXTS), expected)
        loaded.partial_fit(TEXTS, KINDS)
        assert not np.array_equal(loaded.decision_function(TEXTS), expected)


def test_a_file_needs_neither_the_folder_nor_pickle(folder, tmp_path):
    there = shutil.copytree(folder, tmp_path / "transformer")
    clf = quick(Transformer(str(there), learning_rate=0.01), max_epochs=2).fit(TEXTS, KINDS)
    save(clf, tmp_path / "clf", exact=True)
    shutil.rmtree(there)
    with pytest.raises(ValueError, match=r"BertModel, which is not part of.*trusted="):
        load(tmp_path / "clf")
    loaded = load(tmp_path / "clf", trusted=[transformers.BertModel])
    expected = clf.decision_function(TEXTS)
    np.testing.assert_array_equal(loaded.decision_function(TEXTS), expected)
    frozen = [p.requires_grad for p in clf.net_.module_.encoder.parameters()]
    assert [p.requires_grad for p in loaded.net_.module_.encoder.parameters()] == frozen
    assert not all(frozen)
    loaded.partial_fit(TEXTS, KINDS)
    assert not np.array_equal(loaded.decision_function(TEXTS), expected)


@pytest.mark.parametrize(
    "changes, match",
    [
        ({"class": torch.nn.Linear}, "is no transformer, which is made from a configuration"),
        ({"config": '{"vocab_size": 3, "hidden_size": 24}'}, "of shape"),
    ],
)
def test_another_transformer_is_refused(changes, match, folder):
    clf = quick(Transformer(folder), max_epochs=1).fit(TEXTS, KINDS)
    state = clf.__getstate__()
    learnt = {"": state["_net"]["learnt"][""] | changes}
    with pytest.raises(ValueError, match=match):
        clf.__setstate__({**state, "_net": {**state["_net"], "learnt": learnt}})


def test_tokens_come_back():
    tokens = Tokens(word_tokenizer(), 3)
    assert tokens.ids(["a salt water of", "\ud800 water"]) == [[2, 8, 10], [1, 10]]
    assert pickle.loads(pickle.dumps(tokens)).ids(["water"]) == [[10]]
