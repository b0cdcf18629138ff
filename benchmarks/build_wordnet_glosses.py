"""Build the data set behind `sklearn_xlc.datasets.load_wordnet_glosses` from WordNet's own files.

Usage, with the folder that holds ``data.noun`` and ``index.noun`` of WordNet 3.0 (the Debian
package ``wordnet-base`` installs them)::

    python benchmarks/build_wordnet_glosses.py WORDNET_FOLDER [OUTPUT_FOLDER]

It writes ``wordnet_glosses.tsv.gz`` and ``LICENSE-WordNet.txt``. The same input gives the same
content: where chance is wanted, hashes decide.

How rows and labels are chosen:

1. A row is a noun synset; its text is the definition (the gloss without the quoted examples), its
   labels are all synsets above it, over hypernym and instance-hypernym links. Definitions of fewer
   than `MIN_WORDS` words, and those that WordNet marks as offensive, are left out.
2. Synsets are visited in hashed order. One is taken if any of its labels, among those with at
   least `MIN_BELOW` synsets below them, has been taken fewer than `QUOTA` times. So rare labels get
   enough examples without the frequent ones filling the file.
3. About a fifth of the rows is the test part, by a hash of the definition: synsets that share one
   stay together.
4. A label is kept if at least `MIN_TRAIN` training rows and at most `MAX_SHARE` of all rows have
   it: the likes of "entity", true of everything, would make precision meaningless. Rows left
   without labels are dropped.
"""

import argparse
import gzip
import hashlib
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

SEED = "sklearn_xlc"
MIN_WORDS = 4
MIN_BELOW = 20
QUOTA = 8
TEST_SHARE = 0.2
MIN_TRAIN = 3
MAX_SHARE = 0.2

_OFFENSIVE = re.compile(r"offensive|slur|derogat|disparag|vulgar|obscen", re.IGNORECASE)
_DATA = Path(__file__).resolve().parents[1] / "sklearn_xlc" / "datasets" / "data"


class Synset(NamedTuple):
    first_word: str
    parents: list
    definition: str
    offensive: bool


def read_synsets(folder):
    """Offset -> Synset, from ``data.noun`` (format: WordNet's manual page wndb(5))."""
    synsets = {}
    for line in (folder / "data.noun").read_text(encoding="utf-8").splitlines():
        if line.startswith("  "):  # the licence
            continue
        head, gloss = line.split(" | ", 1)
        fields = head.split()
        n_words = int(fields[3], 16)
        links = fields[5 + 2 * n_words :]
        links = [links[i : i + 4] for i in range(0, 4 * int(fields[4 + 2 * n_words]), 4)]
        parents = [offset for symbol, offset, *_ in links if symbol in ("@", "@i")]
        definition = gloss.split('; "')[0].strip()
        synsets[fields[0]] = Synset(fields[4], parents, definition, bool(_OFFENSIVE.search(gloss)))
    return synsets


def synset_names(folder, synsets):
    """Offset -> name such as ``dog.n.01``: first word, part of speech, number of the sense."""
    senses = {}
    for line in (folder / "index.noun").read_text(encoding="utf-8").splitlines():
        if not line.startswith("  "):
            word, _, n_senses, *rest = line.split()
            senses[word] = rest[-int(n_senses) :]
    names = {}
    for offset, synset in synsets.items():
        word = synset.first_word.lower()
        names[offset] = f"{word}.n.{senses[word].index(offset) + 1:02d}"
    return names


def ancestors(synsets):
    """Offset -> set of the offsets above it."""
    above = {}

    def visit(offset):
        if offset not in above:
            parents = synsets[offset].parents
            above[offset] = set(parents).union(*(visit(parent) for parent in parents))
        return above[offset]

    for offset in synsets:
        visit(offset)
    return above


def hashed(text, purpose):
    """Number in [0, 1) that depends on nothing but its arguments."""
    digest = hashlib.sha256(f"{SEED}/{purpose}/{text}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def choose_rows(synsets, above):
    """Offsets of the rows, in hashed order (step 2)."""
    eligible = [
        offset
        for offset, synset in synsets.items()
        if not synset.offensive and len(synset.definition.split()) >= MIN_WORDS
    ]
    below = Counter(label for offset in eligible for label in above[offset])
    rows, taken = [], Counter()
    for offset in sorted(eligible, key=lambda offset: hashed(offset, "order")):
        labels = above[offset]
        if any(below[label] >= MIN_BELOW and taken[label] < QUOTA for label in labels):
            rows.append(offset)
            taken.update(labels)
    return rows


def choose_labels(rows, test, above):
    """Set of the labels kept (step 4)."""
    everywhere = Counter(label for offset in rows for label in above[offset])
    train = Counter(label for offset in rows if offset not in test for label in above[offset])
    return {
        label
        for label, count in train.items()
        if count >= MIN_TRAIN and everywhere[label] <= MAX_SHARE * len(rows)
    }


def read_licence(folder):
    """WordNet's notice, as its data file carries it, without the line numbers."""
    notice = []
    for line in (folder / "data.noun").read_text(encoding="utf-8").splitlines():
        if not line.startswith("  "):
            break
        notice.append(re.sub(r"^ +\d+ ?", "", line).rstrip())
    return (
        "The file wordnet_glosses.tsv.gz is a selection from WordNet 3.0, and stands under this\n"
        "notice, which comes with WordNet 3.0:\n\n" + "\n".join(notice) + "\n"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("wordnet", type=Path, help="folder of data.noun and index.noun")
    parser.add_argument("output", type=Path, nargs="?", default=_DATA)
    arguments = parser.parse_args()

    synsets = read_synsets(arguments.wordnet)
    names = synset_names(arguments.wordnet, synsets)
    above = ancestors(synsets)
    rows = choose_rows(synsets, above)
    test = {row for row in rows if hashed(synsets[row].definition, "split") < TEST_SHARE}
    labels = choose_labels(rows, test, above)

    lines = ["part\tsynset\thypernyms\tdefinition\n"]
    for part in ("train", "test"):
        for offset in rows:
            kept = sorted(names[label] for label in above[offset] & labels)
            if kept and (offset in test) == (part == "test"):
                lines.append(
                    f"{part}\t{names[offset]}\t{' '.join(kept)}\t{synsets[offset].definition}\n"
                )
    with (
        open(arguments.output / "wordnet_glosses.tsv.gz", "wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as file,
    ):
        file.write("".join(lines).encode("utf-8"))
    licence = arguments.output / "LICENSE-WordNet.txt"
    licence.write_text(read_licence(arguments.wordnet), encoding="utf-8")
    print(f"{len(lines) - 1} rows, {len(labels)} labels")


if __name__ == "__main__":
    main()
