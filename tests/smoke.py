"""What an installed package must do in an empty folder: from a file of texts to a saved model.

`make wheel` runs it with the wheel and with the sdist, each in an environment of its own.
"""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline

import sklearn_xlc
from sklearn_xlc import MultiHeadClassifier, load, predict_topk, save
from sklearn_xlc.datasets import load_wordnet_glosses
from sklearn_xlc.metrics import get_scorer

FRESH = """
import sys
from sklearn_xlc import load, predict_topk
model = load("model.xlc")
print(*predict_topk(model, ["a large wild cat with stripes"], k=5).labels[0], sep=";")
"""


def main():
    where = Path(sklearn_xlc.__file__).parent
    assert where.parent.name == "site-packages", f"{where} is not an installed package"
    assert (where / "py.typed").is_file()
    write_table("glosses.csv", n_rows=2000)
    with open("glosses.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    texts = [row["text"] for row in rows]
    tags = [row["tags"].split(";") for row in rows]
    pipeline = make_pipeline(TfidfVectorizer(), MultiHeadClassifier(random_state=0))
    search = GridSearchCV(
        pipeline,
        {"multiheadclassifier__max_epochs": [5, 15]},
        scoring=get_scorer("precision_at_1"),
        cv=KFold(2),
    ).fit(texts, tags)
    model = search.best_estimator_
    labels, probabilities = predict_topk(model, ["a large wild cat with stripes"], k=5, proba=True)
    assert (np.diff(probabilities) <= 0).all()
    assert "animal.n.01" in labels
    save(model, "model.xlc", storage="float32")
    again = predict_topk(load("model.xlc"), texts, k=5)
    np.testing.assert_array_equal(again.labels, predict_topk(model, texts, k=5).labels)
    printed = subprocess.run(
        [sys.executable, "-c", FRESH], capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == ";".join(labels[0])
    print(f"sklearn_xlc {sklearn_xlc.__version__}: P@1 {search.best_score_:.3f}, {labels[0]}")


def write_table(path, n_rows):
    """Write texts and their tags, separated by semicolons, as a spreadsheet has them."""
    glosses = load_wordnet_glosses()
    names = np.asarray(glosses.target_names)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "tags"])
        for row in glosses.train_indices[:n_rows]:
            writer.writerow([glosses.data[row], ";".join(names[glosses.target[row].indices])])


if __name__ == "__main__":
    main()
