"""Files made to deceive `load`: refused in words, at once; nothing is run, opened or allocated.

Flipped bits are found by the digest; here it is computed anew after most changes, so that what lies
behind it must hold. Whatever is wrong with the container, the description or a weight is refused.
A change that makes another valid file, such as another number, may load: nobody can tell.
"""

import io
import json
import pickle
import resource
import sys
import tempfile
import time
import warnings
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import joblib
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from attack._models import ESTIMATORS, build, fitted, make_X, make_y
from attack._processes import counted, forked
from attack._trials import SEED
from sklearn_xlc import _files, load, save
from sklearn_xlc.engine import packing
from sklearn_xlc.engine.rounding import STORAGES

#: Files to change: the storage, name and kind of labels of what is saved in each.
FILES = {
    f"{name}-{'sets' if multilabel else 'classes'}": ("float32", name, multilabel)
    for name, multilabel in ESTIMATORS
}
FILES |= {storage: (storage, "flat", True) for storage in STORAGES}
FILES |= {kind: ("int6", kind, False) for kind in ("pipeline", "search")}
#: What has no network has no weights.
WITHOUT_WEIGHTS = ("eagle-classes", "eagle-sets")
#: Events of Python's audit that tell of code that is run, of a process, or of a change on the disk.
RUNNING = ("pickle.", "compile", "exec", "os.", "shutil.", "subprocess.", "ctypes.", "socket.")
#: Addresses that a load may take beyond what the process has, and its seconds.
ROOM, SECONDS = 2**28, 5
SEEN = []


class Bomb:
    def __reduce__(self):
        return exec, ("raise SystemExit",)


class Parts:
    """A file in pieces that can be changed: header, description and arrays."""

    def __init__(self, data):
        size = 8 + int.from_bytes(data[:8], "little")
        self.data, self.header, self.content = data, json.loads(data[8:size]), data[size:]
        self.head = dict(self.header["__metadata__"])
        del self.head["digest"]
        self.arrays = {
            name: _files._part(np.frombuffer(self.content, np.uint8), entry)
            for name, entry in self.header.items()
            if name != "__metadata__"
        }
        self.document = json.loads(self.arrays.pop(_files._DOCUMENT).tobytes())

    def signed(self, text=None):
        """The bytes of the file with a digest that fits; `text` takes the description's place."""
        text = json.dumps(self.document).encode() if text is None else text
        file = io.BytesIO()
        content = {_files._DOCUMENT: np.frombuffer(text, np.uint8), **self.arrays}
        _files._write_container(file, self.head, content)
        return file.getvalue()

    def headed(self, text=None):
        """The bytes of the file with another header, and the digest of before."""
        text = json.dumps(self.header).encode() if text is None else text
        return len(text).to_bytes(8, "little") + text + self.content

    def nodes(self):
        """All dicts of the description, with the path to each."""
        found, left = [], [(self.document["root"], ())]
        while left:
            node, path = left.pop()
            if isinstance(node, dict):
                found.append((node, path))
            items = node.items() if isinstance(node, dict) else enumerate(node)
            left += [(item, (*path, key)) for key, item in items if isinstance(item, dict | list)]
        return found

    def pick(self, rng, *tags):
        """A node of one of these tags, or any; None without one."""
        fitting = [node for node, _ in self.nodes() if not tags or node.get("is") in tags]
        return fitting[rng.integers(len(fitting))] if fitting else None

    def weight(self, rng):
        """Name of an array that is a weight of a network, or any without a network."""
        full = [name for name, array in self.arrays.items() if array.size]
        names = [name for name in full if "weight" in name] or full
        return names[rng.integers(len(names))]


# --- changes: functions of the parts that return bytes; those of `MUST` have to be refused ------


def bits(parts, rng):
    data = bytearray(parts.data)
    end = len(data) if rng.random() < 0.7 else 4096
    for place in rng.integers(min(end, len(data)), size=rng.choice([1, 1, 5])):
        data[place] ^= 1 << rng.integers(8)
    return bytes(data)


def noise(parts, rng):
    data, at = bytearray(parts.data), rng.integers(len(parts.data))
    data[at : at + 64] = rng.bytes(len(data[at : at + 64]))
    return bytes(data)


def truncation(parts, rng):
    return parts.data[: rng.integers(len(parts.data))]


def extension(parts, rng):
    return parts.data + rng.bytes(rng.integers(1, 100))


def header_length(parts, rng):
    lengths = [0, 1, 7, len(parts.data) - 7, 2**24, 2**31, 2**40, 2**63, 2**64 - 1]
    return int(rng.choice(np.array(lengths, np.uint64))).to_bytes(8, "little") + parts.data[8:]


def format_version(parts, rng):
    parts.head["format"] = str(rng.choice(["3", "0", "-1", "", "1e3", "2 ", "two", "9" * 5000]))
    return parts.signed()


def kind(parts, rng):
    parts.head["kind"] = str(rng.choice(["checkpoint", "", "csr", "../model"]))
    return parts.signed()


def metadata(parts, rng):
    head = parts.header["__metadata__"]
    name = str(rng.choice(list(head)))
    values = [None, 3, [], {}, "", "[" * 10**4, '{"a": 1}']
    head[name] = values[rng.integers(len(values))]
    if rng.random() < 0.3:
        del head[name]
    return parts.headed()


def versions(parts, rng):
    parts.head["versions"] = str(rng.choice(["", "3", "[" * 10**5, '"a"', "[[1, 2, 3]]", "null"]))
    return parts.signed()


def shape_in_header(parts, rng):
    entry = parts.header[parts.weight(rng)]
    shapes = ([2**62, 4], [2**31, 2**31], [-1], [0], [2**64], [1.5], "x", [[2]], [1] * 10**4)
    entry["shape"] = shapes[rng.integers(len(shapes))]
    return parts.headed()


def offsets(parts, rng):
    entry = parts.header[parts.weight(rng)]
    start, end = entry["data_offsets"]
    both = (
        [end, start],
        [start, end + 4],
        [0, 2**62],
        [-4, end],
        [0.5, 2],
        ["a"],
        [],
        None,
        [0, 0],
    )
    entry["data_offsets"] = both[rng.integers(len(both))]
    return parts.headed()


def type_in_header(parts, rng):
    kinds = ("F8_E4M3", "O", "", 3, None, ["F32"], "BF16")
    parts.header[parts.weight(rng)]["dtype"] = kinds[rng.integers(len(kinds))]
    return parts.headed()


def twice_in_header(parts, rng):
    name = parts.weight(rng)
    text = json.dumps(parts.header)
    return parts.headed(f"{text[:-1]}, {json.dumps({name: parts.header[name]})[1:]}".encode())


def header_nested(parts, rng):
    depth = int(rng.choice([10**3, 10**5]))
    return parts.headed(b'{"a":' + b"[" * depth + b"]" * depth + b"}")


def header_renamed(parts, rng):
    names = ["../../etc/passwd", "/tmp/file", "a\0b", "", ".."]
    parts.header[names[rng.integers(len(names))]] = parts.header.pop(parts.weight(rng))
    return parts.headed()


def whole_pickle(parts, rng):
    data = pickle.dumps(Bomb(), protocol=int(rng.integers(6)))
    if rng.random() < 0.5:
        file = io.BytesIO()
        joblib.dump(Bomb(), file)
        data = file.getvalue()
    return data if rng.random() < 0.5 else len(data).to_bytes(8, "little") + data


def pickle_for_description(parts, rng):
    return parts.signed(pickle.dumps(Bomb(), protocol=int(rng.integers(6))))


def pickle_for_weight(parts, rng):
    parts.arrays[parts.weight(rng)] = np.frombuffer(pickle.dumps(Bomb()), np.uint8)
    return parts.signed()


def class_name(parts, rng):
    """A class or function that nobody trusts, or a name that is none."""
    names = ["os.system", "posix.system", "builtins.exec", "builtins.eval", "subprocess.Popen"]
    names += ["joblib.numpy_pickle.load", "sklearn_xlc.engine.files.load", "torch.load"]
    names += [
        "../../os.system",
        "sklearn_xlc/../../evil.Class",
        "sklearn.base..x",
        "\0",
        "",
        "a" * 10**5,
    ]
    names += ["numpy.testing.rundocs", "sklearn.datasets._base.load_files", "sklearn.this.X"]
    name = names[rng.integers(len(names))]
    node = parts.pick(rng, "object", "module")
    node["class"] = name
    if rng.random() < 0.7:
        parts.document["names"].append(name)
    return parts.signed()


def called(parts, rng):
    name = str(rng.choice(["os.system", "builtins.print", "sklearn_xlc.engine.files.save"]))
    function = {"is": "name", "name": name}
    parts.pick(rng, "object")["state"] = {
        "__class__": {"is": "partial", "func": function, "args": ["x"], "keywords": {}}
    }
    parts.document["names"].append(name)
    return parts.signed()


def twice_in_description(parts, rng):
    node = rng.choice([parts.document, parts.document["root"], parts.document["root"]["state"]])
    key = str(rng.choice(list(node)))
    text, again = json.dumps(node), json.dumps({key: node[key]})
    whole = json.dumps(parts.document).replace(text, f"{text[:-1]}, {again[1:]}")
    return parts.signed(whole.encode())


def nested(parts, rng):
    depth = int(rng.choice([10**3, 10**5, 10**6]))
    if rng.random() < 0.5:
        return parts.signed(b"[" * depth + b"]" * depth)
    opening, closing = b'{"is": "list", "items": [', b"]}"
    text = b'{"names": [], "root": ' + opening * depth + closing * depth + b"}"
    return parts.signed(text)


def many_digits(parts, rng):
    return parts.signed(b'{"names": [], "root": ' + b"9" * 10**6 + b"}")


def bomb_of_lists(parts, rng):
    """Each list holds the one before it many times."""
    lists = [{"is": "list", "id": 0, "items": ["x"] * 10}]
    for number in range(1, 30):
        same = {"is": "same", "id": number - 1}
        lists.append({"is": "list", "id": number, "items": [same] * 10})
    parts.document["root"]["state"]["extra"] = {"is": "list", "items": lists}
    return parts.signed()


def huge_array(parts, rng):
    """A few bytes that describe an array, a tensor or a scalar of terabytes."""
    size = int(rng.choice([2**33, 2**40, 2**62]))
    weight = parts.weight(rng)
    packed = {
        "storage": "int8", "dtype": "float32", "shape": [size, 4096], "length": 4096,
        "scales": {"is": "array", "array": weight}, "numbers": {"is": "array", "array": weight},
    }  # fmt: skip
    nodes = [
        {"is": "array", "array": weight, "dtype": "<f8", "shape": [size]},
        {"is": "array", "array": weight, "dtype": f"<U{size}", "shape": [1]},
        {"is": "array", "objects": [1], "shape": [size]},
        {"is": "array", "array": weight, "dtype": "V0", "shape": [size]},
        {"is": "array", "array": weight, "dtype": "|O", "shape": [1]},
        {"is": "scalar", "dtype": f"<U{size}", "bytes": "00"},
        {"is": "sparse", "class": "csr_array", "shape": [size, size]}
        | {key: {"is": "array", "array": weight} for key in ("data", "indices", "indptr")},
        {"is": "packed", "parts": {"is": "dict", "items": packed}},
        {"is": "random_state", "state": {"is": "dict", "items": {"bit_generator": "x" * 10}}},
    ]
    state = parts.document["root"]["state"]
    made = nodes[rng.integers(len(nodes))]
    saved = state.get("_saved_module")
    if made["is"] == "packed" and saved is not None:
        weights = saved["items"]["weights"]["items"]
        weights[next(iter(weights))] = made
    else:
        state["coef_"] = made
    return parts.signed()


def weight_shape(parts, rng):
    name = parts.weight(rng)
    array = parts.arrays[name]
    parts.arrays[name] = array.reshape(-1)[: array.size // 2]
    return parts.signed()


def missing_array(parts, rng):
    del parts.arrays[parts.weight(rng)]
    return parts.signed()


def extra_array(parts, rng):
    parts.arrays["../../extra"] = np.zeros(3)
    return parts.signed()


def no_estimator(parts, rng):
    roots = [3, None, "x", [], {}, {"is": "list", "items": []}, {"is": "same", "id": 0}, {"is": {}}]
    parts.document["root"] = roots[rng.integers(len(roots))]
    return parts.signed()


def traversal_everywhere(parts, rng):
    """An array whose name is a path, in header and description: a name like others."""
    name, text = parts.weight(rng), json.dumps(parts.document)
    parts.document = json.loads(text.replace(json.dumps(name), '"../../../../tmp/x"'))
    parts.arrays["../../../../tmp/x"] = parts.arrays.pop(name)
    return parts.signed()


def other_value(parts, rng):
    """Anything anywhere in the description."""
    values = [None, True, -1, 2**70, 1e308, float("nan"), "", "x" * 1000, [], [[1]], {}]
    values += [{"is": "list", "items": [1]}, {"is": "same", "id": 1}, {"is": "device", "name": "a"}]
    values += [{"is": "path", "name": "/etc/passwd"}, {"is": "set", "items": [{"is": "list"}]}]
    values += [
        {"is": "slice", "items": []},
        {"is": "dtype", "name": "O,O"},
        {"is": "ufunc", "name": "add"},
    ]
    for _ in range(rng.integers(1, 4)):
        node = parts.pick(rng)
        if node:
            node[str(rng.choice(list(node)))] = values[rng.integers(len(values))]
    return parts.signed()


def lost_key(parts, rng):
    node = parts.pick(rng)
    if node:
        del node[str(rng.choice(list(node)))]
    return parts.signed()


def exchanged(parts, rng):
    """Two parts of the description change places."""
    one, other = parts.pick(rng), parts.pick(rng)
    copies = json.loads(json.dumps(one)), json.loads(json.dumps(other))
    one.clear()
    one.update(copies[1])
    if other is not one:
        other.clear()
        other.update(copies[0])
    return parts.signed()


def other_numbers(parts, rng):
    """Arrays of other bytes: indices, row pointers and names of labels among them."""
    name = str(rng.choice(list(parts.arrays)))
    array = parts.arrays[name]
    changed = np.frombuffer(rng.bytes(array.nbytes), array.dtype).reshape(array.shape)
    parts.arrays[name] = changed if array.dtype != bool else ~array
    return parts.signed()


MUST = [bits, noise, truncation, extension, header_length, format_version, kind, metadata, versions]
MUST += [shape_in_header, offsets, type_in_header, twice_in_header, header_nested, header_renamed]
MUST += [whole_pickle, pickle_for_description, pickle_for_weight, class_name, called, nested]
MUST += [twice_in_description, many_digits, bomb_of_lists, huge_array, weight_shape, missing_array]
MUST += [extra_array, no_estimator]
#: A model without a network has no weights, whose shapes are known.
OF_WEIGHTS = [pickle_for_weight, weight_shape]
MAY = [traversal_everywhere, other_value, other_value, lost_key, exchanged, other_numbers]


# --- trials -----------------------------------------------------------------------------------


def _watch(event, args):
    if event == "open":
        path, mode, _ = args
        unusual = str(path) != str(_watch.path) or mode != "r"
    else:
        unusual = event.startswith(RUNNING)
    if _watch.path is not None and unusual:
        SEEN.append((event, str(args)[:200]))


_watch.path = None


def _try(path, must, mapped):
    """What is wrong with loading a file, None if nothing is, and whether it was refused."""
    SEEN.clear()
    start, _watch.path = time.process_time(), path
    try:
        loaded = load(path, mmap=mapped)
    except ValueError as error:
        refused = f"cannot read {path}: " in str(error)
        wrong = None if refused else f"does not name the file: {error!r}"
    except Exception as error:
        refused, wrong = False, repr(error)
    else:
        refused = False
        wrong = "loads" if must or not isinstance(loaded, BaseEstimator) else None
    finally:
        _watch.path = None
    seconds = time.process_time() - start
    if SEEN:
        return f"does {SEEN[:3]}", refused
    return f"takes {seconds:.1f} s" if seconds > SECONDS else wrong, refused


def _try_all(folder, names, n_trials, seed):
    """Failures and number of refusals; in a process that may take little more memory."""
    sys.addaudithook(_watch)
    warnings.simplefilter("ignore")
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    room = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    failures, refused = [], 0
    for trial in range(n_trials):
        rng = np.random.default_rng([seed, trial])
        change = (MUST + MAY)[trial % len(MUST + MAY)]
        name = names[trial // len(MUST + MAY) % len(names)]
        path = Path(folder) / f"{trial}.xlc"
        path.write_bytes(change(Parts(Path(folder, name).read_bytes()), rng))
        must = change in MUST and not (name in WITHOUT_WEIGHTS and change in OF_WEIGHTS)
        wrong, was_refused = _try(path, must, mapped=bool(trial // 7 % 2))
        refused += was_refused
        if wrong:
            failures.append(f"trial {trial}, {change.__name__} of {name}: {wrong}")
        path.unlink()
    return failures, refused


def _saved(name, path):
    """Write the file of that name, whose weights are packed however small they are."""
    storage, kind, multilabel = FILES[name]
    if kind in ("pipeline", "search"):
        model = make_pipeline(MaxAbsScaler(), build("flat"))
        if kind == "search":
            model = GridSearchCV(model, {"multiheadclassifier__max_epochs": [1, 2]}, cv=2)
        model.fit(make_X(), make_y(multilabel))
    else:
        model = fitted(kind, multilabel)
    with patch.object(packing, "SMALL", 1):
        save(model, path, storage)


def hostile_files(names, n_trials, seed=SEED):
    """Failures among files that were changed on purpose."""
    import_module("sklearn.datasets")  # as the names of its functions would
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            _saved(name, Path(folder, name))
            load(Path(folder, name))  # imports what it needs
        outcome = forked(_try_all, folder, names, n_trials, seed, limit=3600)
    assert outcome.value is not None, outcome.error
    failures, refused = outcome.value
    return n_trials, failures, refused


test_hostile_files = counted(
    "hostile files of save",
    hostile_files,
    small=(["int8"], 6 * len(MUST + MAY)),
    whole=(list(FILES), 6 * len(FILES) * len(MUST + MAY)),
    limit=3600,
)
