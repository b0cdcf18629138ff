"""What weights of labels do to frequent and rare labels.

    python benchmarks/class_weights.py DATA_FOLDER --seeds 0 1

Default fits of `MultiHeadClassifier` on the training samples with each `class_weight`, and with the
loss for missing labels beside them; P@k and PSP@k of the test samples, in per cent, means over
seeds.
"""

import argparse
from pathlib import Path

import numpy as np
from _measure import load_part

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.metrics import precision_at_k, propensities, psp_at_k

KS = (1, 3, 5)
MODELS = {
    "None": {},
    '"balanced"': {"class_weight": "balanced"},
    '"propensity"': {"class_weight": "propensity"},
    'None, with `loss="propensity_bce"`': {"loss": "propensity_bce"},
}


def measure(params, train, test, seed):
    clf = MultiHeadClassifier(random_state=seed, **params).fit(*train)
    labels, _ = clf.predict_topk(test[0], k=max(KS))
    weights = propensities(train[1])
    precisions = [precision_at_k(test[1], labels, k=k) for k in KS]
    return precisions + [psp_at_k(test[1], labels, k=k, propensities=weights) for k in KS]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="holds X_trn.npz, Y_trn.npz, *_tst.npz")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    arguments = parser.parse_args()
    train, test = (load_part(arguments.folder, part) for part in ("trn", "tst"))
    print(f"| {arguments.folder.name}, `class_weight` | P@1/3/5 | PSP@1/3/5 |\n|---|---|---|")
    for name, params in MODELS.items():
        values = [measure(params, train, test, seed) for seed in arguments.seeds]
        cells = [f"{100 * value:.1f}" for value in np.mean(values, axis=0)]
        print(f"| {name} | {'/'.join(cells[:3])} | {'/'.join(cells[3:])} |", flush=True)


if __name__ == "__main__":
    main()
