"""Hostile input by the thousand: taken, or refused with one documented error.

Each try draws a request, a stored file or a prompt that is damaged at random, under a
limit of memory. What counts as lost: a damaged run that is read with other weights.
"""

import contextlib
import io
import json
import random
import resource
import shutil
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from rich.text import Text

from circuits.command.cli import _parser
from circuits.command.request import parse_seeds, request_from
from circuits.confirm import open_lab
from circuits.models.files import converted
from circuits.models.open import wrap
from circuits.models.prompts import Piece, spanned
from circuits.report.terminal import console
from circuits.study import STUDIES, find
from probes.measurement import Measurement
from tests.random_models import letter_tokenizer, random_model
from trained.errors import BadInput, Incomplete
from trained.store import Run
from trained.training import restore

from .tally import Row

REFUSED = (BadInput, Incomplete)

LIMIT = 8 * 2**30
"""Bytes that a try may have allocated on top of what the process has."""

WORDS = (
    *(
        "0",
        "-1",
        "1",
        "2",
        "1e9",
        "99999999999999999999",
        "nan",
        "inf",
        "-inf",
        "1e-400",
    ),
    *("", " ", ",", "=", "true", "None", "[]", "[1]", "1,2", "1,,2", "a,b", "()", "{}"),
    *("../../x", "/dev/zero", "file:/dev/zero", "file:/proc/self/mem", "\x00", "\n"),
    *("[/INST]", "[red]", "\ud800", "٣", "𝟘", "\u202e", "a" * 5000, "*", "%s", "{0}"),
)


@contextlib.contextmanager
def limited(extra: int = LIMIT) -> Iterator[None]:
    """Let the block allocate only so much more."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    status = Path("/proc/self/status").read_text()
    used = int(status.split("VmData:")[1].split()[0]) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (used + extra, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _row(
    name: str, tries: int, attempt: Callable[[random.Random], tuple[str, list[str]]]
) -> Row:
    """`attempt` so many times, each from a seed of its own."""
    row = Row(name)
    with limited():
        for index in range(tries):
            try:
                said, complaints = attempt(random.Random(index))
            except Exception as error:
                said, complaints = f"Traceback: {name} {index}: {error!r}"[:500], []
            row.add(said, complaints)
    return row


def campaign(run: Run, folder: Path, tries: int) -> Iterator[Row]:
    """So many tries over all kinds; what takes longer is tried less often."""
    folder.mkdir(parents=True)
    yield requests(tries * 40 // 100)
    yield seeds(tries * 10 // 100)
    yield measurements(folder, tries * 20 // 100)
    yield stored_runs(run, folder, tries * 14 // 100)
    yield prompts(tries * 14 // 100)
    yield gguf_files(folder, tries * 2 // 100)


def requests(tries: int) -> Row:
    """Command lines of every study, with keys and values that make no sense."""
    keys = {study: list(_keys(find(study).preset("quick").config)) for study in STUDIES}

    def attempt(source: random.Random) -> tuple[str, list[str]]:
        study = source.choice([*STUDIES, *STUDIES, source.choice(WORDS)])
        words = [source.choice(("confirm", "train", "sweep")), study]
        for _ in range(source.randint(0, 3)):
            key = source.choice([*keys.get(study, list(WORDS)), source.choice(WORDS)])
            words += ["--set", f"{key}={source.choice(WORDS)}"]
        for option in ("--preset", "--seeds", "--device", "--jobs", "--executor"):
            if source.random() < 0.15:
                words += [option, source.choice(WORDS)]
        with contextlib.suppress(*REFUSED), contextlib.redirect_stdout(io.StringIO()):
            options = _parser().parse_args(words)
            name = options.study if "study" in options else options.studies[0]
            request = request_from(name, options)
            find(request.study)
        return "", []

    return _row("a request", tries, attempt)


def _keys(config: Any, prefix: str = "") -> Iterator[str]:
    for field in fields(config):
        value = getattr(config, field.name)
        yield prefix + field.name
        if is_dataclass(value):
            yield from _keys(value, f"{prefix}{field.name}.")


def seeds(tries: int) -> Row:
    """What `--seeds` may be given."""

    def attempt(source: random.Random) -> tuple[str, list[str]]:
        text = "".join(
            source.choice("0123456789,- .e٣x") for _ in range(source.randint(0, 8))
        )
        with contextlib.suppress(*REFUSED):
            found = parse_seeds(text)
            if not found or len(set(found)) != len(found):
                return "", [f"--seeds {text!r} gave {found}"]
        return "", []

    return _row("--seeds", tries, attempt)


def damaged(content: bytes, source: random.Random) -> bytes:
    """A file's content with something wrong."""
    data = bytearray(content)
    match source.randint(0, 5):
        case 0:
            return bytes(data[: source.randint(0, len(data))])
        case 1:
            for _ in range(source.randint(1, 8)):
                data[source.randrange(len(data))] ^= 1 << source.randrange(8)
        case 2:
            at = source.randrange(len(data))
            data[at : at + source.randint(1, 64)] = source.randbytes(
                source.randint(0, 64)
            )
        case 3:
            data += source.randbytes(source.randint(1, 64))
        case 4:
            # The lengths that a header gives.
            data[:8] = source.choice((0, 1, 2**31, 2**63 - 1, 2**64 - 1)).to_bytes(
                8, "little"
            )
        case _:
            return source.randbytes(source.randint(0, 256))
    return bytes(data)


def _edited_json(text: str, source: random.Random) -> str:
    """A JSON object in which one value, somewhere, is another."""
    whole = json.loads(text)
    place: Any = whole
    while True:
        key = source.choice(
            list(place) if isinstance(place, dict) else range(len(place))
        )
        inner = place[key]
        if isinstance(inner, dict | list) and inner and source.random() < 0.8:
            place = inner
            continue
        place[key] = source.choice(
            (None, -1, 0, 1e308, 10**30, "", "../x", "x" * 9999, [], {}, [[]], True)
        )
        return json.dumps(whole)


def stored_runs(run: Run, folder: Path, tries: int) -> Row:
    """A finished run with one damaged file: never read as if it were whole."""
    copy = Run(folder / run.path.name)
    shutil.copytree(run.path, copy.path)
    files = sorted(f for f in copy.path.rglob("*") if f.is_file())
    arm = next(iter(open_lab(run).arms.values()))
    whole = dict(restore(run, arm, run.seeds[0]).named_parameters())

    def attempt(source: random.Random) -> tuple[str, list[str]]:
        file = source.choice(files)
        content = file.read_bytes()
        if file.suffix == ".json" and source.random() < 0.7:
            bad = _edited_json(content.decode(), source).encode()
        else:
            bad = damaged(content, source)
        file.write_bytes(bad)
        try:
            with contextlib.suppress(*REFUSED):
                lab = open_lab(Run.open(copy.path))
                found = restore(lab.run, lab.arms[arm.name], lab.seeds[0])
                if any(
                    not torch.equal(p, whole[n]) for n, p in found.named_parameters()
                ):
                    return "", [f"{file.name} was damaged, and read with other weights"]
        finally:
            file.write_bytes(content)
        return "", []

    return _row("a damaged run", tries, attempt)


def measurements(folder: Path, tries: int) -> Row:
    """A damaged Measurement: read, or `ValueError`; it has no hash of its values."""
    file = Measurement(
        torch.arange(6.0).reshape(2, 3),
        ("layer", "pos"),
        {"layer": (0, 1), "pos": "abc"},
    ).save(folder / "whole.safetensors")
    content = file.read_bytes()

    def attempt(source: random.Random) -> tuple[str, list[str]]:
        file.write_bytes(damaged(content, source))
        with contextlib.suppress(ValueError):
            Measurement.load(file)
        return "", []

    return _row("a damaged Measurement", tries, attempt)


def gguf_files(folder: Path, tries: int) -> Row:
    """A damaged model file, which a foreign library reads."""
    import gguf

    file = folder / "model.gguf"
    writer = gguf.GGUFWriter(file, "llama")
    for add, value in (
        (writer.add_context_length, 32),
        (writer.add_embedding_length, 8),
        (writer.add_block_count, 1),
        (writer.add_feed_forward_length, 16),
        (writer.add_head_count, 2),
        (writer.add_layer_norm_rms_eps, 1e-5),
    ):
        add(value)
    writer.add_token_list(["a", "b", "<s>"])
    writer.add_tensor("token_embd.weight", torch.zeros(3, 8).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    content = file.read_bytes()

    def attempt(source: random.Random) -> tuple[str, list[str]]:
        file.write_bytes(damaged(content, source))
        quiet = contextlib.redirect_stderr(io.StringIO())
        with contextlib.suppress(*REFUSED), quiet:
            shutil.rmtree(converted(file, torch.float32))
        return "", []

    return _row("a damaged model file", tries, attempt)


def prompts(tries: int) -> Row:
    """Any text as a prompt and as a role, and any text on a terminal."""
    model = wrap(random_model("gpt2"), letter_tokenizer())
    letters = "abc \n\t\x00\x1b[]/\\{}<>&'\"\ud800\u202e٣é漢👩‍👩‍👧"

    def text(source: random.Random) -> str:
        if source.random() < 0.2:
            return source.choice(WORDS)[:64]
        return "".join(source.choice(letters) for _ in range(source.randint(0, 24)))

    def attempt(source: random.Random) -> tuple[str, list[str]]:
        pieces = [text(source) for _ in range(source.randint(1, 3))]
        with contextlib.suppress(*REFUSED):
            spanned(model, [[*map(Piece, pieces[:-1]), Piece(pieces[-1], "role")]])
        page = console(stderr=False)
        page.file = io.StringIO()
        page.print(Text(pieces[0].encode("utf-8", "replace").decode()))
        return "", []

    return _row("a prompt", tries, attempt)
