"""From a table of texts and tags to a service: what an installed package does in an empty folder.

`make wheel` runs this with the wheel, made from the sdist, in an environment of its own. The
parts between the marks are the code of `docs/tutorial.md`. README's code and commands run, too,
as README has them. With `--p99 10` the script fails if one
answer in a hundred over HTTP takes longer than 10 milliseconds.
"""

# ruff: noqa: E402 - the parts of the tutorial import what they use

import argparse
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError

import numpy as np

import sklearn_xlc

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--p99", type=float, default=np.inf, help="milliseconds")
parser.add_argument("--requests", type=int, default=200, help="answers that are timed")
parser.add_argument("--any-place", action="store_true", help="the package need not be installed")
options = parser.parse_args()

where = Path(sklearn_xlc.__file__).parent
installed = where.parent.name == "site-packages"
assert installed or options.any_place, f"{where} is not an installed package"
assert (where / "py.typed").is_file()

# [table]
import csv

from sklearn_xlc.datasets import load_wordnet_glosses

glosses = load_wordnet_glosses()
with open("glosses.csv", "w", newline="", encoding="utf-8") as file:
    writer = csv.writer(file)
    writer.writerow(["text", "tags"])
    for row in glosses.train_indices[:4000]:
        names = [glosses.target_names[label] for label in glosses.target[row].indices]
        writer.writerow([glosses.data[row], ";".join(names)])
# [end]

# [read]
with open("glosses.csv", newline="", encoding="utf-8") as file:
    rows = list(csv.DictReader(file))
texts = [row["text"] for row in rows]
tags = [row["tags"].split(";") for row in rows]
# [end]
assert len(texts) == len(tags) == 4000
assert all(names and all(names) for names in tags)

# [search]
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV, KFold, train_test_split
from sklearn.pipeline import make_pipeline

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.metrics import get_scorer

train_texts, test_texts, train_tags, test_tags = train_test_split(texts, tags, random_state=0)
search = GridSearchCV(
    make_pipeline(TfidfVectorizer(), MultiHeadClassifier(random_state=0)),
    {"multiheadclassifier__max_epochs": [5, 15]},
    scoring=get_scorer("precision_at_1"),
    cv=KFold(2),
)
search.fit(train_texts, train_tags)
model = search.best_estimator_
# [end]
assert 0.5 < search.best_score_ < 1
assert model[-1].ranker_ is not None

# [rank]
from sklearn_xlc import predict_topk

new_texts = ["a small brown bird that eats insects", "a herb with yellow flowers"]
best = predict_topk(model, new_texts, k=5, proba=True)
best  # in a notebook, a table
# [end]
assert "animal.n.01" in best.labels[0]
assert "plant.n.02" in best.labels[1]
assert (np.diff(best.scores) <= 0).all()
assert ((best.scores > 0) & (best.scores <= 1)).all()

# [measure]
from sklearn_xlc.metrics import expected_calibration_error, precision_at_k

labels, probabilities = predict_topk(model, test_texts, k=5, proba=True)
precision = precision_at_k(test_tags, labels, k=1)
error = expected_calibration_error(test_tags, labels[:, :1], probabilities[:, :1])[0]
# [end]
assert 0.5 < precision < 1
assert error < 0.1

# [explain]
from sklearn_xlc import explain_topk

why = explain_topk(model, new_texts, k=1, n_columns=3)
why  # which words raised the best tag, and by how much
# [end]
assert why.labels[:, 0].tolist() == best.labels[:, 0].tolist()
assert all(set(words[0]) <= set(text.split()) for words, text in zip(why.columns, new_texts))
assert (why.contributions[:, :, 0] > 0).all()
assert (abs(why.errors) < 0.05 * abs(why.contributions).sum(axis=2)).all()

# [save]
from sklearn_xlc import load, save

save(model, "model.skops", exact=True)
same = predict_topk(load("model.skops"), new_texts, k=5, proba=True)
# [end]
np.testing.assert_array_equal(same.labels, best.labels)
np.testing.assert_array_equal(same.scores, best.scores)

# A process that cannot unpickle loads the file and answers alike.
WITHOUT_PICKLE = """
import pickle, sys
from sklearn_xlc import load, predict_topk

def refuse(*args, **kwargs):
    raise AssertionError("something was unpickled")

sys.addaudithook(lambda event, args: event == "pickle.find_class" and refuse())
for name in ("load", "loads", "Unpickler", "_load", "_loads", "_Unpickler"):
    setattr(pickle, name, refuse)
print(*predict_topk(load("model.skops"), [sys.argv[1]], k=5).labels[0], sep=";")
"""
command = [sys.executable, "-c", WITHOUT_PICKLE, new_texts[0]]
printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
assert printed.strip() == ";".join(best.labels[0])

# The command of the tutorial, on a port that is free.
with socket.create_server(("127.0.0.1", 0)) as unused:
    port = str(unused.getsockname()[1])
url = f"http://127.0.0.1:{port}"
server = subprocess.Popen(
    [sys.executable, "-m", "sklearn_xlc", "serve", "model.skops", "--port", port],
    env={**os.environ, "OMP_NUM_THREADS": "1"},
)
try:
    # [ask]
    import json
    from urllib.request import Request, urlopen

    def ask(texts, k=5):
        body = json.dumps({"samples": texts, "k": k}).encode()
        request = Request(f"{url}/predict", body, {"Content-Type": "application/json"})
        with urlopen(request) as answer:
            return json.load(answer)

    # [end]
    deadline = time.monotonic() + 120
    while True:
        assert server.poll() is None, "the service has ended"
        try:
            with urlopen(f"{url}/health") as answer:
                health = json.load(answer)
            break
        except URLError:
            assert time.monotonic() < deadline, "the service does not answer"
            time.sleep(0.1)
    assert (health["status"], health["error"]) == ("ok", None)
    answers = ask(new_texts)
    assert answers["labels"] == best.labels.tolist()
    np.testing.assert_allclose(answers["probabilities"], best.scores, rtol=1e-4)

    seconds = []
    for number in range(options.requests):
        start = time.perf_counter()
        ask([texts[number % len(texts)]])
        seconds.append(time.perf_counter() - start)
    with urlopen(f"{url}/metrics") as answer:
        metrics = answer.read().decode()
    assert f'xlc_requests_total{{status="200"}} {options.requests + 1}.0' in metrics
finally:
    server.terminate()
    server.wait(timeout=60)

# What README shows: its code, and its commands on the tables that they name.
readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
(code,) = re.findall(r"^```python\n(.+?)^```", readme, re.M | re.S)
names: dict = {}
exec(compile(code, "README.md", "exec"), names)
assert names["labels"].shape == names["probabilities"].shape == (len(names["test"]), 5)

for name, part in {"table": rows[:2000], "test": rows[2000:2300], "new": rows[2300:2310]}.items():
    with open(f"{name}.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["title", "body", "tags"])
        writer.writerows([*row["text"].partition(" ")[::2], row["tags"]] for row in part)
script = [str(Path(sys.executable).with_name("sklearn-xlc"))]
script = [sys.executable, "-m", "sklearn_xlc"] if options.any_place else script
(block,) = re.findall(r"^```bash\n(sklearn-xlc .+?)^```", readme, re.M | re.S)
commands = [shlex.split(line)[1:] for line in block.splitlines()]
assert [words[0] for words in commands] == ["fit", "evaluate", "predict", "explain", "serve"]
for words in commands[:-1]:  # a service has answered above
    subprocess.run([*script, *words], check=True)
with open("ranked.csv", newline="", encoding="utf-8") as file:
    assert len({row[0] for row in csv.reader(file)}) == 1 + 10  # a heading, and each sample

middle, late = 1e3 * np.quantile(seconds, [0.5, 0.99])
print(f"sklearn_xlc {sklearn_xlc.__version__}: P@1 {precision:.3f}, ECE@1 {error:.3f}")
print(best)
print(why)
print(f"over HTTP, one text: median {middle:.1f} ms, 99th percentile {late:.1f} ms")
assert late < options.p99, f"the 99th percentile is {late:.1f} ms, more than {options.p99:g}"
