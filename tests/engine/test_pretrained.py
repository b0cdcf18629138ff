"""Files of transformers: class and configuration, no pickle."""

from functools import partial

import numpy as np
import pytest
import torch

import sklearn_xlc
from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.encoders import TransformerEncoder
from sklearn_xlc.engine.object_tree import describe, rebuild

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

TEXTS = ["salt water", "water", "wild animal", "animal"] * 5
KINDS = ["water", "water", "animal", "animal"] * 5


def word_tokenizer():
    words = {"[UNK]": 0, "salt": 1, "water": 2, "wild": 3, "animal": 4}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return made


def tiny_model(kind=transformers.BertModel):
    torch.manual_seed(0)
    config = kind.config_class(
        vocab_size=5, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2
    )
    return kind(config)


def fitted():
    encoder = partial(TransformerEncoder, tiny_model(), learning_rate=0.01)
    encoder = encoder(tokenizer=word_tokenizer())
    clf = MultiHeadClassifier(encoder=encoder, max_epochs=3, random_state=0)
    return clf.fit(TEXTS, KINDS)


def test_saved_and_loaded_by_trust(tmp_path):
    clf = fitted()
    sklearn_xlc.save(clf, tmp_path / "clf", storage="float32")
    with pytest.raises(ValueError, match=r"BertModel, which is not part of.*trusted="):
        sklearn_xlc.load(tmp_path / "clf")
    loaded = sklearn_xlc.load(tmp_path / "clf", trusted=[transformers.BertModel])
    expected = clf.decision_function(TEXTS)
    np.testing.assert_array_equal(loaded.decision_function(TEXTS), expected)
    frozen = [p.requires_grad for p in clf.net_.module_.encoder.parameters()]
    assert [p.requires_grad for p in loaded.net_.module_.encoder.parameters()] == frozen
    assert not all(frozen)
    loaded.partial_fit(TEXTS, KINDS)
    assert not np.array_equal(loaded.decision_function(TEXTS), expected)


def test_shared_weights_are_shared_again():
    model = tiny_model(transformers.BertForMaskedLM)
    table = model.bert.embeddings.word_embeddings
    assert table.weight is model.cls.predictions.decoder.weight
    made = rebuild(*describe(model), trusted=[transformers.BertForMaskedLM])
    assert made.bert.embeddings.word_embeddings.weight is made.cls.predictions.decoder.weight
    inputs = {"input_ids": torch.tensor([[1, 2]])}
    with torch.no_grad():
        expected = model.eval()(**inputs).logits
        assert torch.equal(made.eval()(**inputs).logits, expected)


@pytest.mark.parametrize(
    "spoil, message",
    [
        (lambda node: node["config"].update(hidden_size=16), "is no tensor of BertModel"),
        (lambda node: node["config"].update(num_attention_heads=3), "cannot be made"),
        (lambda node: node["tensors"].popitem(), "of BertModel is missing"),
        (lambda node: node["tensors"].update(more=1), "more is no tensor of BertModel"),
    ],
)
def test_another_configuration_is_refused(spoil, message):
    document, arrays = describe(tiny_model())
    spoil(document["root"])
    with pytest.raises(ValueError, match=message):
        rebuild(document, arrays, trusted=[transformers.BertModel])


def test_a_class_that_is_no_transformer_is_refused():
    document, arrays = describe(tiny_model())
    document["root"]["class"] = "torch.nn.modules.linear.Linear"
    document["names"] = ["torch.nn.modules.linear.Linear"]
    with pytest.raises(ValueError, match="Linear is not made from a configuration"):
        rebuild(document, arrays)
