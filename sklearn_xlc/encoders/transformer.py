"""Encoder of strings by a transformer of the Hugging Face library, fine-tuned or frozen."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sklearn_xlc._bounds import check_integer, check_option, check_real, is_path
from sklearn_xlc._compat import import_text, without_surrogates
from sklearn_xlc.encoders._base import Encoder, EncoderPart

#: Texts that pass through the transformer at once; texts of similar length go together.
_AT_ONCE = 64


class Tokens:
    """Tokenizer of tokenizers, or of transformers based on one, saved as its JSON document.

    Texts are cut to `max_length` tokens.
    """

    def __init__(self, tokenizer: Any, max_length: int) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if not hasattr(backend, "encode_batch") or not hasattr(backend, "to_str"):
            raise TypeError(
                "tokenizer must be a tokenizers.Tokenizer, or one of transformers that is based on "
                f"it (AutoTokenizer), got {type(tokenizer).__name__}"
            )
        self.document, self.max_length = backend.to_str(), max_length
        self._made: Any = None

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text."""
        if self._made is None:
            from tokenizers import Tokenizer

            made = Tokenizer.from_str(self.document)
            made.no_padding()
            made.enable_truncation(self.max_length)
            self._made = made
        return [encoding.ids for encoding in self._made.encode_batch(without_surrogates(texts))]


class TransformerEncoder(Encoder):
    """Pretrained transformer for strings, fine-tuned with a learning rate of its own.

    A text is cut into tokens, and the last hidden states of the tokens are pooled into its
    features. The transformer starts from its pretrained weights and moves at `learning_rate`, the
    head at the `learning_rate` of the classifier; both follow the classifier's schedule.

    Parameters
    ----------
    model : str, path-like or transformers.PreTrainedModel
        As of :class:`Transformer`; a name is downloaded unless ``HF_HUB_OFFLINE=1``.
    tokenizer : object, default=None
        As of :class:`Transformer`.
    learning_rate, weight_decay, max_length : float or int, default=1e-4 and 0.01 and 128
        As of :class:`Transformer`.
    pooling : {"mean", "cls"}, default="mean"
        As of :class:`Transformer`.

    Attributes
    ----------
    accepts : tuple
        ``("text",)``.
    n_outputs : int
        Number of features, the hidden size of the transformer.
    model : transformers.PreTrainedModel
        Transformer.

    See Also
    --------
    TextEncoder : Sums of word vectors, trained from scratch in seconds.
    sklearn_xlc.SentenceVectorizer : Vectors of a frozen model, computed once.

    Notes
    -----
    Training takes a fraction of the time with ``precision="bfloat16"`` where the processor or GPU
    multiplies such matrices. To load a file of :func:`sklearn_xlc.save`, trust the class of the
    transformer: ``load(path, trusted=[transformers.BertModel])``; it is made again from its
    configuration.
    """

    accepts = ("text",)

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        learning_rate: float = 1e-4,
        weight_decay: float = 0.01,
        max_length: int = 128,
        pooling: str = "mean",
    ) -> None:
        super().__init__()
        self.pooling = check_option(pooling, "pooling", "mean", "cls")
        check_real(learning_rate, "learning_rate", 0)
        check_real(weight_decay, "weight_decay", 0)
        check_integer(max_length, "max_length")
        self.model, tokenizer = _loaded(model, tokenizer)
        config: Any = self.model.config
        longest = getattr(config, "max_position_embeddings", None) or max_length
        self.tokens = Tokens(tokenizer, min(max_length, longest))
        self.padding = getattr(config, "pad_token_id", None) or 0
        self.n_outputs = int(config.hidden_size)
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        # A layer on top that features do not pass through would never have a gradient.
        frozen = getattr(self.model, "pooler", None) if learning_rate else self.model
        if frozen is not None:
            frozen.requires_grad_(False)

    def get_extra_state(self) -> dict[str, Any]:
        """Return what builds the transformer again: class, configuration and tokenizer."""
        config: Any = self.model.config
        return {
            "class": type(self.model),
            "config": config.to_json_string(use_diff=False),
            "tokenizer": self.tokens.document,
        }

    def set_extra_state(self, state: Any) -> None:
        """Do nothing: :meth:`Transformer.rebuild` has read the state."""

    def train(self, mode: bool = True) -> TransformerEncoder:
        """Set the mode; a frozen transformer stays in evaluation mode, without dropout."""
        super().train(mode)
        if not self.learning_rate:
            self.model.eval()
        return self

    def collate(self, samples: Sequence[str]) -> dict[str, Tensor]:
        """Return token ids and attention mask, (n_samples, n_tokens), padded to the longest."""
        ids = self.tokens.ids(samples)
        sizes = np.array([len(row) for row in ids])
        mask = np.arange(max(1, sizes.max())) < sizes[:, None]
        tokens = np.full(mask.shape, self.padding, dtype=np.int64)
        tokens[mask] = [token for row in ids for token in row]
        mask[:, 0] = True  # a text without tokens is one of padding
        return {"input_ids": torch.from_numpy(tokens), "attention_mask": torch.from_numpy(mask)}

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the transformer's parameters with its learning rate; only matrices decay."""
        trained = [each for each in self.model.parameters() if each.requires_grad]
        return [
            {"params": params, "lr": self.learning_rate, "weight_decay": decay}
            for is_matrix, decay in ((True, self.weight_decay), (False, 0.0))
            if (params := [each for each in trained if (each.ndim > 1) == is_matrix])
        ]

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        """Compute features of shape (n_samples, n_outputs)."""
        # Attention to padding is lost time, and activations of a whole batch are large.
        sizes = inputs["attention_mask"].sum(1)
        order = sizes.argsort(stable=True)
        longest = sizes[order][_AT_ONCE - 1 :: _AT_ONCE].tolist() + [int(sizes.max())]
        parts = zip(order.split(_AT_ONCE), longest)
        features = [
            self._pooled(*(inputs[name][rows, :size] for name in ("input_ids", "attention_mask")))
            for rows, size in parts
        ]
        return torch.cat(features)[order.argsort()]

    def _pooled(self, tokens: Tensor, mask: Tensor) -> Tensor:
        states = self.model(input_ids=tokens, attention_mask=mask.long()).last_hidden_state
        states = states.to(torch.promote_types(states.dtype, torch.float32))
        if self.pooling == "cls":
            return states[:, 0]
        weight = mask.to(states.dtype)[:, :, None]
        return (states * weight).sum(1) / weight.sum(1)


def _loaded(model: Any, tokenizer: Any) -> tuple[nn.Module, Any]:
    """Return a copy of a transformer, or load it by folder or name, with its tokenizer."""
    if is_path(model):
        transformers = import_text("transformers")
        if tokenizer is None:
            tokenizer = transformers.AutoTokenizer.from_pretrained(model)
        loaded = transformers.AutoModel.from_pretrained(model, dtype=torch.float32)
    elif isinstance(model, nn.Module) and hasattr(model, "config"):
        if tokenizer is None:
            raise ValueError(
                "tokenizer is None, but model is no folder or name; give its tokenizer"
            )
        loaded = copy.deepcopy(model)
    else:
        raise TypeError(
            "model must be a folder, a name or a transformers.PreTrainedModel, got "
            f"{type(model).__name__}"
        )
    if getattr(loaded.config, "is_encoder_decoder", False) and hasattr(loaded, "decoder"):
        raise ValueError(
            f"model {type(loaded).__name__} has a decoder; give its encoder: model.get_encoder()"
        )
    return loaded, tokenizer


class Transformer(EncoderPart):
    """Pretrained transformer, fine-tuned with a learning rate of its own.

    It needs the packages ``transformers`` and ``tokenizers``: ``pip install sklearn-xlc[text]``.
    The transformer is read in `fit`.

    Parameters
    ----------
    model : str, path-like or transformers.PreTrainedModel
        Transformer: a folder in the format of `save_pretrained`, a name that
        ``transformers.AutoModel`` finds, or a model, which is copied.
    tokenizer : object, default=None
        Tokenizer of transformers or of tokenizers. None: that of the folder or name `model`.
    learning_rate : float, default=1e-4
        Peak learning rate of the transformer. 0.0 freezes it.
    weight_decay : float, default=0.01
        Decoupled weight decay of the transformer's matrices; vectors do not decay.
    max_length : int, default=128
        Largest number of tokens of a text; the rest of a longer text is not read.
    pooling : {"mean", "cls"}, default="mean"
        Features of a text: the mean of its tokens, or the first token.

    See Also
    --------
    TransformerEncoder : The module.

    Examples
    --------
    >>> from sklearn_xlc.encoders import Transformer
    >>> Transformer("folder/of/all-MiniLM-L6-v2", max_length=64)
    Transformer(max_length=64, model='folder/of/all-MiniLM-L6-v2')
    """

    module = TransformerEncoder

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        learning_rate: float = 1e-4,
        weight_decay: float = 0.01,
        max_length: int = 128,
        pooling: str = "mean",
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.max_length = max_length
        self.pooling = pooling

    @property
    def shown(self) -> Any:
        # The trained copy of a model is part of the net; the given one would be saved beside it.
        if not isinstance(self.model, nn.Module):
            return self
        params = {"model": type(self.model).__name__, "tokenizer": None}
        return Transformer(**{**self.get_params(deep=False), **params})

    def rebuild(self, n_features: int | None, sparse: bool, learnt: Any = None) -> nn.Module:
        kind = learnt["class"]
        if not hasattr(getattr(kind, "config_class", None), "from_dict"):
            raise ValueError(f"{kind!r} is no transformer, which is made from a configuration")
        model = kind(kind.config_class.from_dict(json.loads(learnt["config"])))
        tokenizer = import_text("tokenizers").Tokenizer.from_str(learnt["tokenizer"])
        params = {**self.get_params(deep=False), "model": model, "tokenizer": tokenizer}
        return TransformerEncoder(**params)
