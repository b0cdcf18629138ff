"""The examples run, without warnings, and show what their texts say.

Those that train for long are run with one or two epochs a fit here, and as they are among the slow
tests.
"""

import ast
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from sklearn_xlc import compress
from sklearn_xlc.metrics import precision_at_k

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name):
    """Variables that an example leaves behind."""
    (path,) = EXAMPLES.glob(f"*/{name}.py")
    return runpy.run_path(str(path), run_name="__main__")


@pytest.fixture
def no_matplotlib(monkeypatch):
    """As on a machine where it is not installed."""
    for name in ("matplotlib", "matplotlib.pyplot"):
        monkeypatch.setitem(sys.modules, name, None)


def precisions_of_quick_start(shown):
    return [
        precision_at_k(shown["Y_test"], shown["rankings"][name], k=5)
        for name in ("MultiHeadClassifier", "most frequent labels")
    ]


@pytest.mark.slow
def test_quick_start(no_matplotlib):
    learnt, constant = precisions_of_quick_start(run("plot_quick_start"))
    assert learnt > 0.5 > 0.2 > constant


@pytest.mark.parametrize("few_glosses", [9], indirect=True)
def test_quick_start_in_two_epochs(no_matplotlib, two_epochs, few_glosses, capsys):
    shown = run("plot_quick_start")
    learnt, constant = precisions_of_quick_start(shown)
    assert learnt > 0.2 > constant
    assert len(shown["classifier"].loss_curve_) == 2
    expected = compress(shown["model"]).predict(shown["texts_test"])
    assert (shown["loaded"].predict(shown["texts_test"]) != expected).nnz == 0
    # Of 1170 labels some 30 change places with others: four hits more or less are chance.
    pairs = zip(shown["again"], shown["rankings"]["MultiHeadClassifier"])
    assert np.mean([np.isin(rounded, exact).mean() for rounded, exact in pairs]) > 0.95
    printed = capsys.readouterr().out
    assert f"{learnt:.3f}" in printed
    assert "flywheel: regulator consisting of a heavy wheel" in printed
    assert "No figure: plots need matplotlib" in printed


@pytest.mark.slow
def test_own_encoder(capsys):
    shown = run("plot_own_encoder")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    scores = {words[0]: float(words[-1]) for words in lines if words and words[-1][:2] == "0."}
    # Of 899 images; with three seeds .055 to .061 more.
    assert scores["convolutional"] > scores["default"] + 0.03
    assert scores["learnt"] > scores["pixels"] + 0.03
    assert shown["classifier"].n_features_in_ == 64


@pytest.mark.parametrize(
    "name",
    [
        "explain",
        pytest.param("guaranteed_risk", marks=pytest.mark.slow),
        pytest.param("label_set_decoding", marks=pytest.mark.slow),
        "neural_collapse",
        "own_decision",
        "own_encoder",
        "own_head",
        "own_loss",
        "own_retriever",
        "ranked_list",
    ],
)
@pytest.mark.parametrize("few_glosses", [8], indirect=True, ids=["few"])
def test_in_one_epoch(one_epoch, few_glosses, name):
    run(f"plot_{name}")


@pytest.mark.slow
def test_guaranteed_risk():
    shown = run("plot_guaranteed_risk")
    mean, error = shown["risks"].mean(axis=1), shown["risks"].std(axis=1) / shown["N_DRAWS"] ** 0.5
    assert (mean <= shown["alphas"] + 2 * error).all()
    assert (mean >= shown["alphas"] - 0.02).all()
    assert (np.diff(shown["sizes"].mean(axis=1)) < 0).all()


@pytest.mark.slow
def test_explain():
    by_contribution, by_lot = run("plot_explain")["curves"].values()
    assert by_contribution[0] == by_lot[0]
    assert by_contribution[2] < by_lot[-1]


@pytest.mark.slow
def test_taxonomy():
    shown = run("plot_taxonomy")
    (plain, lacking), (closed, none) = shown["found"].values()
    assert none == 0 < 0.05 < lacking
    assert closed > plain - 0.005 > 0.5
    old, new = (shown[name][shown["sample"]] for name in ("before", "after"))
    assert all(
        new[tag] <= new[up] for tag in new for up in shown["parents"].get(tag, ()) if up in new
    )
    assert any(
        old[tag] > old[up] for tag in old for up in shown["parents"].get(tag, ()) if up in old
    )


@pytest.mark.slow
def test_ranked_list(capsys):
    shown = run("plot_ranked_list")
    printed = capsys.readouterr().out
    truth, network, ranked = (shown[name] for name in ("tags_test", "by_network", "ranked"))
    assert precision_at_k(truth, ranked, k=5) > precision_at_k(truth, network, k=5) + 0.01
    gained = np.subtract(*shown["hits"][::-1])
    assert gained[shown["sample"]] >= 2
    assert shown["gone"] not in shown["again"].examples.ravel()
    assert f"without {shown['gone']!r}" in printed


@pytest.mark.slow
def test_labels_without_samples():
    shown = run("plot_labels_without_samples")
    names, both, samples = (shown["found"](labels)[9] for labels in shown["lists"].values())
    assert samples == 0
    assert both > 0.6 * names > 0.2
    one, other = map(np.array, shown["others"].values())
    assert (one > other - 0.01).all()
    assert set(shown["labels"][0][:2]) & shown["new"]


@pytest.mark.slow
def test_pictures():
    recall = run("plot_pictures")["recall"]
    usual, weighted = (display.values for display in recall.values())
    assert (weighted[-4:-1] > usual[-4:-1]).all()
    assert weighted[-1] < usual[-1]


@pytest.mark.slow
def test_own_head():
    accuracy = run("plot_own_head")["accuracy"]
    found = {(kind.__name__, width): value for (kind, width), value in accuracy.items()}
    assert found["HyperbolicHead", 2] > found["FlatHead", 2] + 0.02  # of 1500 samples, .051 more
    assert 0.9 < found["HyperbolicHead", 10] < found["FlatHead", 10]


@pytest.mark.slow
def test_own_loss():
    usual, *_, robust = run("plot_own_loss")["accuracy"].values()
    assert robust[0] > 0.95
    more = np.subtract(robust, usual)  # .006, .012, .043 and .073 of 899 images
    assert (np.diff(more) > 0).all()
    assert more[0] > -0.01
    assert more[-1] > 0.05


@pytest.mark.slow
def test_own_decision():
    scores = run("plot_own_decision")["scores"]
    of_samples = {name: found[0] for name, found in scores.items()}
    assert of_samples["ExpectedF1"] > of_samples["one half"] + 0.05
    assert of_samples["CalibratedF1"] == max(of_samples.values())
    assert scores["Threshold"][1] == max(micro for _, micro in scores.values())


@pytest.mark.slow
def test_own_retriever():
    network, lists, genus = map(np.array, run("plot_own_retriever")["precision"].values())
    assert (lists > network + 0.005).all()
    assert (genus > lists + 0.02).all()


def test_labels_of_groups_in_two_epochs(two_epochs, few_glosses):
    shown = run("plot_labels_of_groups")
    check_assignment_in_the_toy(shown)
    for (everything, _), (paper, _), (true, _) in zip(*shown["found"].values()):
        assert everything < paper < true - 0.08


@pytest.mark.parametrize("few_glosses", [32], indirect=True)
def test_paragraphs_from_pages_in_one_epoch(one_epoch, few_glosses):
    scores = run("plot_paragraphs_from_pages")["scores"]
    assert all(0 < value <= 1 for found in scores.values() for value in found)


@pytest.mark.slow
def test_text_in(all_trees, capsys):
    shown = run("plot_text_in")
    names = shown["names"]
    assert names[shown["before"]] != "device.n.01" == names[shown["after"]]
    assert "animal.n.01" in capsys.readouterr().out
    learnt = precision_at_k(shown["Y_test"], shown["labels"], k=3)
    constant = np.sort(np.asarray(shown["Y_test"].mean(axis=0)).ravel())[-3:].mean()
    assert learnt > 2.5 * constant
    words, _, letters = shown["search"].cv_results_["mean_test_score"]
    assert min(words, letters) > 1.5 * constant


@pytest.mark.slow
def test_text_grid_search():
    search = run("plot_text_grid_search")["search"]
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert search.best_score_ > scores.min() + 0.02


@pytest.mark.slow
def test_halving_search():
    search = run("plot_halving_search")["search"]
    assert search.n_resources_ == [1, 3, 9]
    assert search.n_candidates_ == [9, 3, 1]
    results = search.cv_results_
    best = [results["mean_test_score"][results["iter"] == i].max() for i in range(3)]
    assert best[0] < best[1] - 0.02 < best[2] - 0.04


@pytest.mark.slow
def test_optuna_search(capsys):
    pytest.importorskip("optuna")
    shown = run("plot_optuna_search")
    states = [trial.state.name for trial in shown["study"].trials]
    assert 2 <= states.count("PRUNED") <= 9
    assert states.count("PRUNED") + states.count("COMPLETE") == 12
    pruned = [len(shown["curves"][i]) for i, state in enumerate(states) if state == "PRUNED"]
    assert max(pruned) < 8  # epochs
    assert "P@5 on the test part: 0.4" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # processes and sockets of dask
def test_dask_search(capsys):
    pytest.importorskip("distributed")
    shown = run("plot_dask_search")
    scores = [shown[name].cv_results_["mean_test_score"] for name in ("search", "here")]
    np.testing.assert_array_equal(*scores)
    assert "2 workers" in capsys.readouterr().out


@pytest.mark.parametrize("name, module", [("optuna", "optuna"), ("dask", "dask.distributed")])
def test_a_library_that_is_not_installed_is_named(monkeypatch, capsys, name, module):
    monkeypatch.setitem(sys.modules, module, None)
    run(f"plot_{name}_search")
    assert f"Install {name} to run this example" in capsys.readouterr().out


@pytest.mark.slow
def test_million_classes(no_matplotlib):
    shown = run("plot_million_classes")
    assert len(shown["classifier"].classes_) == 1_000_000
    network, ranked = shown["accuracy"]["network"], shown["accuracy"]["ranked"]
    assert network["100 or more"] > 0.98
    assert network["20-99"] > 0.85
    assert ranked["1"] > 0.5 > 0.01 > network["1"]
    assert shown["hit"].mean() > 0.85


@pytest.mark.slow
def test_pretraining_sampling():
    accuracy = run("plot_pretraining_sampling")["accuracy"]
    assert accuracy["features"][0] > 0.9 > 0.4 > accuracy["pixels"][0]


def test_sigmoid_bottleneck():
    missing = run("plot_sigmoid_bottleneck")["missing"]
    assert missing == {
        "2 features": ["{}", "{A, B, C}"],
        "2 features and biases": ["{A, B, C}"],
        "Fourier, 3 features": [],
    }


def check_unreachable_label_sets():
    shown = run("plot_unreachable_label_sets")
    assert shown["report"].n_unargmaxable > 0
    rows = {row[:2]: row for row in shown["rows"]}
    assert rows["bottleneck", 10][4] > 0
    assert all(rows["dft", d][4] == 0 for d in (5, 10, 20))
    # Fewer parameters than the bottleneck has, and better.
    assert rows["dft", 5][2] < rows["bottleneck", 20][2]
    assert rows["dft", 5][3] > rows["bottleneck", 20][3]


@pytest.mark.slow
def test_unreachable_label_sets():
    check_unreachable_label_sets()


@pytest.mark.slow
@pytest.mark.parametrize("few_glosses", [16], indirect=True)
def test_unreachable_label_sets_in_two_epochs(two_epochs, few_glosses):
    check_unreachable_label_sets()


@pytest.mark.slow
def test_neural_collapse():
    classifiers = run("plot_neural_collapse")["classifiers"]
    history = classifiers["fixed"].net_.history
    for measure in ("nc1", "nc3", "ncm_2"):
        assert history[-1, measure] < history[0, measure] / 4
    assert classifiers["fixed"].n_parameters_ == classifiers["learnt"].n_parameters_ - 320


@pytest.mark.slow
def test_label_set_decoding():
    shown = run("plot_label_set_decoding")
    unseen = {name: score[1] for name, score in shown["images_score"].items()}
    assert unseen["seen"] == 0
    assert unseen["nearest"] > unseen["threshold 0.5"] + 0.1
    n_labels, f1, _ = zip(*shown["text_score"].values())
    assert n_labels[1] > 1.5 * n_labels[0]  # "nearest" takes too many where nothing collapses
    assert f1[0] > max(f1[1:]) + 0.05


def check_assignment_in_the_toy(shown):
    """One label a row, the same of each group."""
    assert (shown["assigned"].sum(axis=1) == 1).all()
    assert (shown["assigned"][::2] == shown["assigned"][0]).all()


@pytest.mark.slow
def test_labels_of_groups():
    shown = run("plot_labels_of_groups")
    check_assignment_in_the_toy(shown)
    assert shown["found"]["default"][0][0] > 0.8
    for place in range(3):
        p1 = {name: found[place][1] for name, found in shown["found"].items()}
        assert shown["oracle"] > p1["default"] > max(p1.values()) - 1e-12
    _, p1 = shown["found"]["default"][0]
    assert p1 > 0.9 * shown["oracle"]


@pytest.mark.slow
def test_paragraphs_from_pages():
    scores = run("plot_paragraphs_from_pages")["scores"]
    for pages, assigned, true in zip(*scores.values()):
        assert 1.3 * pages < assigned > 0.85 * true


def test_label_embeddings_of_images():
    shown = run("plot_label_embeddings_of_images")
    right = shown["right"]
    assert right["contrast=None"][0] > right["mean of the groups"][0] + 0.05
    assert right["default"][0] > max(right["contrast=None"][0], 0.9)
    # The embeddings of the paper look like the digits; the means of groups look like one another.
    known, of_groups, paper, _ = (np.asarray(images) for images in shown["pictures"].values())
    alike = [np.corrcoef(images, known)[:10, 10:] for images in (of_groups, paper)]
    assert np.diag(alike[1]).min() > 0.9
    assert (alike[1].argmax(axis=1) == np.arange(10)).all()
    assert np.corrcoef(of_groups)[np.triu_indices(10, 1)].min() > 0.8


def test_every_example_has_a_test():
    for path in EXAMPLES.rglob("plot_*.py"):
        assert f"test_{path.stem.removeprefix('plot_')}" in globals()


def conf(name):
    """Value of a constant in the configuration of the site."""
    tree = ast.parse((EXAMPLES.parent / "docs" / "conf.py").read_text(encoding="utf-8"))
    (value,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
    ]
    return value


def test_the_site_leaves_out_examples_that_exist():
    long = conf("LONG")
    assert 0 < len(long) < len(list(EXAMPLES.rglob("plot_*.py"))) / 3
    assert all(len(list(EXAMPLES.glob(f"*/plot_{name}.py"))) == 1 for name in long)


def test_every_section_of_the_gallery_has_a_title_and_a_place():
    sections = {path.parent for path in EXAMPLES.glob("*/*.py")}
    assert all((section / "GALLERY_HEADER.rst").is_file() for section in sections)
    assert {section.name for section in sections} == set(conf("SECTIONS"))
