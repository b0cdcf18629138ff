"""Files made to deceive `load`: refused in words, at once; nothing is run, opened or allocated.

Flipped bits are found by the digest; here it is computed anew after most changes, so that what lies
behind it must hold. Whatever is wrong with the container, the description or a weight is refused.
A change that makes another valid file, such as another number, may load: nobody can tell. It then
predicts: it may raise an error of Python, and neither end the process nor hang.
"""

import contextlib
import io
import json
import pickle
import resource
import sys
import tempfile
import time
import warnings
import zipfile
from pathlib import Path
from unittest.mock import patch

import joblib
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from attack._models import ESTIMATORS, METHODS, build, fitted, make_X
from attack._processes import counted, forked
from attack._trials import SEED
from sklearn_xlc import load, save
from sklearn_xlc.engine import files, state

#: Files to change: whether it is exact, name and kind of labels of what is saved in each.
FILES = {
    f"{name}-{'sets' if multilabel else 'classes'}": (True, name, multilabel)
    for name, multilabel in ESTIMATORS
}
FILES |= {"rounded": (False, "flat", True), "pipeline": (False, "pipeline", False)}
#: Events of Python's audit that tell of code that is run, of a process, or of a change on the disk.
RUNNING = ("pickle.", "exec", "os.", "shutil.", "subprocess.", "ctypes.", "socket.")
#: Reading of a module that a trusted name is in, and of folders.
READING = ("os.listdir", "os.scandir", "os.stat")
#: Addresses that a load may take beyond what the process has, and its seconds.
ROOM, SECONDS = 2**28, 5
TEXTS = ["a body of salt water", "an animal that barks", "a stream of water"] * 4
SEEN = []


class Bomb:
    def __reduce__(self):
        return exec, ("raise SystemExit",)


class Parts:
    """A file in pieces that can be changed: description, arrays and other members."""

    def __init__(self, data):
        self.data = data
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            self.members = {name: archive.read(name) for name in archive.namelist()}
        self.schema = json.loads(self.members.pop("schema.json"))

    def signed(self, text=None):
        """The bytes of the file with a digest that fits; `text` takes the description's place."""
        text = json.dumps(self.schema).encode() if text is None else text
        file = io.BytesIO()
        files._write([*self.members.items(), ("schema.json", text)], file)
        return file.getvalue()

    def nodes(self, *loaders):
        """All dicts of the description of these loaders, or with any."""
        found, left = [], [self.schema]
        while left:
            node = left.pop()
            if isinstance(node, dict) and "__loader__" in node:
                found += [node] if not loaders or node["__loader__"] in loaders else []
            items = node.values() if isinstance(node, dict) else node
            left += [item for item in items if isinstance(item, dict | list)]
        return found

    def pick(self, rng, *loaders):
        nodes = self.nodes(*loaders)
        return nodes[rng.integers(len(nodes))]

    def array(self, rng):
        """Name of a member with an array."""
        names = [name for name in self.members if name.endswith(".npy")]
        return names[rng.integers(len(names))]

    def weights(self):
        """Nodes of the weights of a network; empty without one."""
        for node in self.nodes("DictNode"):
            if isinstance(node["content"], dict) and "frozen" in node["content"]:
                return node["content"]["weights"]["content"]
        return {}


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


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


def whole_pickle(parts, rng):
    data = pickle.dumps(Bomb(), protocol=int(rng.integers(6)))
    if rng.random() < 0.5:
        file = io.BytesIO()
        joblib.dump(Bomb(), file)
        data = file.getvalue()
    return data


def pickle_for_description(parts, rng):
    return parts.signed(pickle.dumps(Bomb(), protocol=int(rng.integers(6))))


def pickle_for_array(parts, rng):
    content = pickle.dumps(Bomb())
    if rng.random() < 0.5:
        content = npy(np.array([Bomb()], dtype=object))
    parts.members[parts.array(rng)] = content
    return parts.signed()


def class_name(parts, rng):
    """A class or function that nobody trusts, or a name that is none."""
    names = ["os.system", "posix.system", "builtins.exec", "builtins.eval", "subprocess.Popen"]
    names += [
        "joblib.numpy_pickle.load",
        "sklearn_xlc.engine.files.load",
        "torch.serialization.load",
    ]
    names += ["sklearn_xlc.training.net.XLCNet", "torch.nn.modules.linear.Linear", "pickle.loads"]
    names += ["sklearn_xlc/../../evil.Class", "sklearn.base..x", "a.\0", "x.", "a." + "a" * 10**5]
    names += ["sklearn.tree._tree.Tree", "sklearn.datasets._base.load_files", "sklearn.this.X"]
    module, _, name = names[rng.integers(len(names))].rpartition(".")
    parts.pick(rng, "ObjectNode").update({"__class__": name, "__module__": module})
    return parts.signed()


def called(parts, rng):
    """A function as an attribute, partial or method, that reading or predicting would call."""
    module, name = [("os", "system"), ("builtins", "exec"), ("sklearn_xlc.engine.files", "save")][
        rng.integers(3)
    ]
    function = {"__class__": name, "__module__": module, "__loader__": "FunctionNode"}
    node = parts.pick(rng, "ObjectNode")
    content = node["content"]["content"]
    content["transform"] = function | {"__id__": int(rng.integers(2**31))}
    return parts.signed()


def nested(parts, rng):
    depth = int(rng.choice([10**3, 10**5, 10**6]))
    if rng.random() < 0.5:
        return parts.signed(b"[" * depth + b"]" * depth)
    opening = (
        b'{"__class__": "list", "__module__": "builtins", "__loader__": "ListNode", "content": ['
    )
    return parts.signed(opening * min(depth, 10**4) + b"]}" * min(depth, 10**4))


def many_digits(parts, rng):
    return parts.signed(b'{"content": ' + b"9" * 10**6 + b"}")


def huge_array(parts, rng):
    """A few bytes that describe an array of terabytes."""
    size = int(rng.choice([2**33, 2**40, 2**62]))
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({size},), }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    parts.members[parts.array(rng)] = content + bytes(64)
    return parts.signed()


def bomb_of_zeros(parts, rng):
    """A member that grows by hundreds when it is read, to more than there is room for."""
    return bomb(parts, parts.array(rng), [bytes(2**20)] * 400)


def bomb_in_archive(parts, rng):
    """A member of SciPy with zeros, or with a directory of a million names, in place of one."""
    names = b"PK\x01\x02" + bytes(24) + b"\x01\x00" + bytes(16) + b"a"
    block = [bytes(2**20), names * 2**14][rng.integers(2)]
    end = b"PK\x05\x06" + bytes(4) + b"\xff" * 4 + (100 * len(block)).to_bytes(4, "little")
    return bomb(parts, "more.npz", [block] * 100 + [end + bytes(6)])


def bomb(parts, large, blocks):
    """A file with further content of one member, deflated."""
    parts.members.setdefault(large, b"")
    source, file = io.BytesIO(parts.signed()), io.BytesIO()
    with (
        zipfile.ZipFile(source) as archive,
        zipfile.ZipFile(file, "w", 8, compresslevel=1) as target,
    ):
        for name in archive.namelist():
            with target.open(name, "w") as member:
                member.write(archive.read(name))
                for block in blocks if name == large else ():
                    member.write(block)
    return file.getvalue()


def weight_shape(parts, rng):
    weights = {k: v for k, v in parts.weights().items() if v["__loader__"] == "NdArrayNode"}
    name = list(weights)[rng.integers(len(weights))]
    file = weights[name]["file"]
    array = np.load(io.BytesIO(parts.members[file]))
    others = [array.reshape(-1)[: array.size // 2], array[None], array.astype(complex)]
    if array.dtype.kind == "f" and array.size:  # an empty one would be as it was
        others.append(np.full_like(array, np.nan))
    parts.members[file] = npy(others[rng.integers(len(others))])
    return parts.signed()


def lost_weight(parts, rng):
    weights = parts.weights()
    name = list(weights)[rng.integers(len(weights))]
    lost = weights.pop(name)
    if rng.random() < 0.5:
        weights["head.extra"] = lost
    return parts.signed()


def missing_array(parts, rng):
    del parts.members[parts.array(rng)]
    return parts.signed()


def no_estimator(parts, rng):
    roots = [3, None, "x", [], {}, {"__loader__": "ListNode"}, {"__loader__": "CachedNode"}]
    made = roots[rng.integers(len(roots))]
    parts.schema = {**made, "protocol": 2} if isinstance(made, dict) else made
    return parts.signed()


def other_value(parts, rng):
    """Anything anywhere in the description."""
    values = [None, True, -1, 2**70, 1e308, "", "x" * 1000, [], [[1]], {}, "DictNode", "TypeNode"]
    values += ["CachedNode", "MethodNode", "PartialNode", "OperatorFuncNode", "../../x", "builtins"]
    for _ in range(rng.integers(1, 4)):
        node = parts.pick(rng)
        node[str(rng.choice(list(node)))] = values[rng.integers(len(values))]
    return parts.signed()


def lost_key(parts, rng):
    node = parts.pick(rng)
    del node[str(rng.choice(list(node)))]
    return parts.signed()


def lost_attribute(parts, rng):
    node = parts.pick(rng, "DictNode")
    if isinstance(node["content"], dict) and node["content"]:
        del node["content"][str(rng.choice(list(node["content"])))]
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


def exchanged_members(parts, rng):
    one, other = parts.array(rng), parts.array(rng)
    members = parts.members
    members[one], members[other] = members[other], members[one]
    return parts.signed()


def other_numbers(parts, rng):
    """Arrays of other bytes: indices, row pointers and names of labels among them."""
    name = parts.array(rng)
    array = np.load(io.BytesIO(parts.members[name]))
    changed = np.frombuffer(rng.bytes(array.nbytes), array.dtype).reshape(array.shape)
    parts.members[name] = npy(changed if array.dtype != bool else ~array)
    return parts.signed()


MUST = [bits, noise, truncation, extension, whole_pickle, pickle_for_description, pickle_for_array]
MUST += [class_name, called, nested, many_digits, huge_array, bomb_of_zeros, bomb_in_archive]
MUST += [missing_array, no_estimator, weight_shape, lost_weight]
#: A model without a network has no weights, whose shapes are known.
OF_WEIGHTS = [weight_shape, lost_weight]
MAY = [other_value, other_value, lost_key, lost_attribute, exchanged, exchanged_members]
MAY += [other_numbers]


# --- trials -----------------------------------------------------------------------------------


def _watch(event, args):
    if event == "open":
        path, mode, _ = args
        is_memory = str(path).startswith(("/proc/", "/sys/fs/cgroup"))  # how much there is
        unusual = not is_memory and (str(path) != str(_watch.path) or mode not in ("r", "rb"))
    else:
        unusual = event.startswith(RUNNING) and event not in READING
    if _watch.path is not None and unusual:
        SEEN.append((event, str(args)[:200]))


_watch.path = None


def _predict(model, X):
    for name in METHODS:
        with contextlib.suppress(Exception):
            getattr(model, name)(X)


def _try(path, must, X):
    """What is wrong with loading a file, None if nothing is, and whether it was refused."""
    loaded = None
    SEEN.clear()
    start, _watch.path = time.process_time(), path
    try:
        loaded = load(path)
    except (ValueError, MemoryError) as error:
        refused = f"cannot read {path}: " in str(error) or isinstance(error, MemoryError)
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
    if loaded is not None and wrong is None:
        wrong = forked(_predict, loaded, X, limit=60).error or None
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
        name = names[(trial + trial // len(MUST + MAY)) % len(names)]
        parts = Parts(Path(folder, name).read_bytes())
        if change in OF_WEIGHTS and not parts.weights():
            continue
        path = Path(folder) / f"{trial}.skops"
        path.write_bytes(change(parts, rng))
        wrong, was_refused = _try(path, change in MUST, TEXTS if "pipeline" in name else make_X())
        refused += was_refused
        if wrong:
            failures.append(f"trial {trial}, {change.__name__} of {name}: {wrong}")
        path.unlink()
    return failures, refused


def _saved(name, path):
    """Write the file of that name, whose weights are rounded however small they are."""
    exact, kind, multilabel = FILES[name]
    if kind == "pipeline":
        model = make_pipeline(TfidfVectorizer(), build("flat")).fit(TEXTS, [0, 1, 0] * 4)
    else:
        model = fitted(kind, multilabel)
    with patch.object(state, "SMALL", 1):
        save(model, path, exact=exact)


def hostile_files(names, n_trials, seed=SEED):
    """Failures among files that were changed on purpose."""
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            _saved(name, Path(folder, name))
            repr(load(Path(folder, name)))  # imports what it and a message need
        outcome = forked(_try_all, folder, names, n_trials, seed, limit=3600)
    assert outcome.value is not None, outcome.error
    failures, refused = outcome.value
    return n_trials, failures, refused


test_hostile_files = counted(
    "hostile files of save",
    hostile_files,
    small=(["rounded", "flat-sets"], len(MUST + MAY)),
    whole=(list(FILES), 6 * len(FILES) * len(MUST + MAY)),
    limit=3600,
)
