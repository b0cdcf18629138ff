"""Ways from texts to features: word counts, hashed words, frozen vectors and transformers.

    python benchmarks/text_encoders.py DATA --transformer FOLDER --train 1000

DATA holds trn.jsonl.gz and tst.jsonl.gz with a "text" and "labels" in each line. Each model runs
in a fresh process. FOLDER holds a pretrained transformer in the format of `save_pretrained`;
without it the rows that need one are left out. Prints a table; ``--out`` also writes JSON.
"""

import argparse
import gzip
import json
import tempfile
import time
from pathlib import Path

import numpy as np
from _measure import Clock, MemoryWatch, describe_machine, fresh_process, yield_memory

#: One-row predictions whose median CPU time is reported, after a tenth as many that are not.
N_SINGLE = 200


def tfidf(ngram_range=(1, 1)):
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(sublinear_tf=True, min_df=2, ngram_range=ngram_range, dtype=np.float32)


def hashed():
    from sklearn.feature_extraction.text import HashingVectorizer

    return HashingVectorizer(dtype=np.float32)  # to 2**20 columns


def default():
    from sklearn_xlc import MultiHeadClassifier

    return MultiHeadClassifier(random_state=0)


def on(*steps):
    from sklearn.pipeline import make_pipeline

    return make_pipeline(*steps, default())


def vectors(options, folder="wordllama"):
    from sklearn_xlc import SentenceVectorizer

    return SentenceVectorizer(folder, max_length=options.max_length)


def both(options):
    from sklearn.pipeline import make_union

    return on(make_union(tfidf(), vectors(options)))


def words(**params):
    from sklearn_xlc.encoders import Text

    return default().set_params(encoder=Text(**params))


def fine_tuned(options, model, tokenizer, **params):
    from sklearn_xlc.encoders import Transformer

    encoder = Transformer(
        model,
        tokenizer,
        max_length=options.max_length,
        **{"learning_rate": options.learning_rate, **params},
    )
    return default().set_params(
        encoder=encoder,
        batch_size=16,
        learning_rate=5e-3,
        max_epochs=options.epochs,
        precision="bfloat16",
    )


def upper_layers(options):
    """The pretrained transformer, of which only the upper layers are trained, and its tokenizer."""
    from transformers import AutoModel, AutoTokenizer

    model = AutoModel.from_pretrained(options.transformer).requires_grad_(False)
    model.encoder.layer[-options.layers :].requires_grad_(True)
    return model, AutoTokenizer.from_pretrained(options.transformer)


def from_scratch(options, texts):
    """A small transformer with random weights, and a tokenizer learnt from the texts."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
    from transformers import BertConfig, BertModel

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=8000, special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    torch.manual_seed(0)
    model = BertModel(
        BertConfig(
            vocab_size=tokenizer.get_vocab_size(),
            hidden_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=512,
            max_position_embeddings=options.max_length,
        )
    )
    return fine_tuned(options, model, tokenizer, learning_rate=2e-3)


def model_of(name, options, texts):
    folder = options.transformer
    return {
        "TF-IDF": lambda: on(tfidf()),
        "TF-IDF, words and pairs": lambda: on(tfidf((1, 2))),
        "`HashingVectorizer`": lambda: on(hashed()),
        "`encoders.Text`": lambda: words(),
        "`encoders.Text`, words and pairs": lambda: words(ngram_range=(1, 2), n_buckets=2**20),
        "`SentenceVectorizer()`": lambda: on(vectors(options)),
        "TF-IDF and `SentenceVectorizer()`": lambda: both(options),
        "`SentenceVectorizer(FOLDER)`": lambda: on(vectors(options, folder)),
        "`encoders.Transformer`, small, from scratch": lambda: from_scratch(options, texts),
        "`encoders.Transformer(FOLDER)`, fine-tuned": lambda: fine_tuned(
            options, *upper_layers(options)
        ),
    }[name]()


NAMES = (
    "TF-IDF",
    "TF-IDF, words and pairs",
    "`HashingVectorizer`",
    "`encoders.Text`",
    "`encoders.Text`, words and pairs",
    "`SentenceVectorizer()`",
    "TF-IDF and `SentenceVectorizer()`",
    "`encoders.Transformer`, small, from scratch",
    "`SentenceVectorizer(FOLDER)`",
    "`encoders.Transformer(FOLDER)`, fine-tuned",
)


def load(folder, part):
    with gzip.open(Path(folder, f"{part}.jsonl.gz"), "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [row["text"] for row in rows], [row["labels"] for row in rows]


def run(options, scratch):
    """Fit, score, time and save one model; the report is left in `scratch`."""
    import joblib

    from sklearn_xlc import predict_topk
    from sklearn_xlc.metrics import precision_at_k

    yield_memory()
    texts, tags = load(options.folder, "trn")
    some = np.linspace(0, len(texts) - 1, options.train or len(texts)).astype(int)
    texts, tags = [texts[i] for i in some], [tags[i] for i in some]
    new_texts, new_tags = load(options.folder, "tst")
    with MemoryWatch() as watch, Clock() as fit:
        model = model_of(options.run, options, texts).fit(texts, tags)
    with Clock() as predict:
        labels, _ = predict_topk(model, new_texts, k=5)
    seconds = []
    for text in new_texts[: N_SINGLE + N_SINGLE // 10]:
        start = time.process_time()
        predict_topk(model, [text], k=5)
        seconds.append(time.process_time() - start)
    joblib.dump(model, scratch / "model.joblib")
    report = {
        "status": "ok",
        "precision": [100 * precision_at_k(new_tags, labels, k=k) for k in (1, 3, 5)],
        "fit_cpu_s": fit.cpu,
        "fit_bytes": watch.anonymous,
        "predict_cpu_s": predict.cpu,
        "one_row_cpu_ms": 1e3 * float(np.median(seconds[N_SINGLE // 10 :])),
        "model_bytes": (scratch / "model.joblib").stat().st_size,
    }
    Path(scratch, "report.json").write_text(json.dumps(report))


def row(name, report):
    if report["status"] != "ok":
        return f"| {name} | {report['status']} | | | | | |"
    precision = "/".join(f"{value:.1f}" for value in report["precision"])
    return (
        f"| {name} | {precision} | {report['fit_cpu_s']:.1f} | {report['fit_bytes'] / 2**20:.0f} | "
        f"{report['predict_cpu_s']:.1f} | "
        f"{report['one_row_cpu_ms']:.1f} | {report['model_bytes'] / 2**20:.0f} |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--transformer", help="folder of a pretrained transformer")
    parser.add_argument("--train", type=int, default=0, help="training texts; default: all")
    parser.add_argument("--max-length", type=int, default=32, help="tokens of a text")
    parser.add_argument("--epochs", type=int, default=5, help="epochs of fine-tuning")
    parser.add_argument("--layers", type=int, default=6, help="upper layers that it trains")
    parser.add_argument("--learning-rate", type=float, default=2e-4, help="of fine-tuning")
    parser.add_argument("--models", nargs="+", default=NAMES, choices=NAMES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--limit", type=float, default=7200.0, help="seconds a model may take")
    parser.add_argument("--out", type=Path, help="file for all numbers")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run(options, options.scratch)
        return
    reports = {}
    print("| | P@1/3/5 | fit s (CPU) | fit MiB | predict s (CPU) | one row, ms (CPU) | model MiB |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for name in options.models:
        if "FOLDER" in name and not options.transformer:
            continue
        with tempfile.TemporaryDirectory(prefix="xlc-bench-") as scratch:
            passed = [f"--{key}={getattr(options, key.replace('-', '_'))}" for key in PASSED]
            if options.transformer:
                passed.append(f"--transformer={options.transformer}")
            arguments = [__file__, options.folder, *passed, f"--run={name}", f"--scratch={scratch}"]
            report = fresh_process(arguments, scratch, threads=options.threads, limit=options.limit)
        reports[name] = report
        print(row(name, report), flush=True)
        if options.out:
            machine = describe_machine(options.threads)
            options.out.write_text(json.dumps({"machine": machine, "models": reports}, indent=1))


#: Options that the process of a model is given.
PASSED = ("train", "max-length", "epochs", "layers", "learning-rate")

if __name__ == "__main__":
    main()
