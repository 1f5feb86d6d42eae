"""The house is tidy: nothing dead, nothing twice, nothing without a name or a sentence.

Every file is parsed once. Each check is a function from the tree to complaints, and is seen to
complain about a planted example.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent

FOR_TESTS = {"sim", "testing", "verify"}
"""Rooms whose users are tests: the simulator, the fixture and the rules that both check."""
SPECIFICATION = "layout"
"""Modules of this name draw byte layouts in construct; property tests compare the codecs to them."""
LOWER_CASE_NAMES = {"mqadmin", "msgpack", "structlog", "uvloop"}
"""What is written small at the beginning of a sentence, too. So are names like brokerStatus."""
WORDS_MIN = 3
CALLED_BY_LIBRARIES = {
    "asyncio.BaseEventLoop", "asyncio.BufferedProtocol", "asyncio.Protocol", "asyncio.Transport",
    "DataSource", "DataSourceReader", "DataSourceStreamReader", "SupportsTriggerAvailableNow",
    "click.Group",
}  # fmt: skip
"""Classes whose methods a library calls by name."""
CALLING_DECORATORS = {"command", "fixture", "hookimpl", "group"}
"""Decorators that hand a function to click or pytest, which call it."""

LEFT: dict[str, set[str]] = {
    "dead_names": {
        # A trace's line for each event and effect.
        "rmqha.ha.events.describe",
        "rmqha.broker.pop.aio.revive.open_count",
        # Called by the name of an event's kind.
        "rmqha.sim.explore.replica._altered", "rmqha.sim.explore.replica._polled",
        # Rows of a format's table that nothing asks about.
        "rmqha.store.record.NEED_UNWRAP", "rmqha.store.record.TRANSACTION_PREPARED",
        "rmqha.store.properties.INNER_NUM",
        # Beside to_reader, for those who call rmqha.pipeline.read.
        "rmqha.pipeline.commitlog.arrow_reader.to_table",
    },
    "constants": {
        # The real RocketMQ's processes and client know nothing of ours, on purpose.
        "BOOT_LINE", "PAYLOAD", "PULL_NOT_FOUND", "QUEUES",
        # How much is done before others get their turn: each service's own choice.
        "BATCH_MAX", "READ_MAX",
        # Rooms beside each other, and the pipeline, which sees only the cores of the store.
        "BACKUP_SUFFIX", "CHECKPOINT", "INT64_LIMIT", "PORT_MAX", "SEPARATOR",
        # Codes and masks that several rooms spell out.
        "CRC_MASK", "OFFLINE", "PAIR_END", "RETRY_FIRST_EVERY",
    },
}  # fmt: skip
"""What is known and stays for now: the subject of the complaint, with the reason above it."""

TESTED_THROUGH = {
    "rmqha.admin.bodies": "tests/admin/test_cluster_texts.py",
    "rmqha.admin.commands.consume_stats": "tests/admin/test_cluster_commands.py",
    "rmqha.admin.commands.message_calls": "tests/admin/test_cluster_commands.py",
    "rmqha.admin.commands.message_tracks": "tests/admin/test_cluster_texts.py",
    "rmqha.admin.static_topic_report": "tests/admin/test_static_topic_commands.py",
    "rmqha.admin.static_topic_view": "tests/admin/test_static_topic_views.py",
    "rmqha.admin.static_topics": "tests/admin/test_static_topic_commands.py",
    "rmqha.admin.topic_calls": "tests/admin/test_cluster_commands.py",
    "rmqha.broker.admin.status_document": "tests/web/test_page.py",
    "rmqha.broker.groups.aio.assignment_requests": "tests/broker/test_pop_in_simulator.py",
    "rmqha.broker.groups.offset_rules": "tests/broker/test_consumer_requests.py",
    "rmqha.broker.logical.aio.offset_requests": "tests/broker/test_logical_queues.py",
    "rmqha.broker.membership.aio.asking": "tests/broker/test_stalls_in_simulator.py",
    "rmqha.broker.membership.ha_status": "tests/broker/test_requests.py",
    "rmqha.broker.naming.aio.registration": "tests/broker/test_topics_published.py",
    "rmqha.broker.pop.aio.ack_requests": "tests/broker/test_pop_in_simulator.py",
    "rmqha.broker.pop.aio.collected": "tests/broker/test_pop_in_simulator.py",
    "rmqha.broker.pop.aio.ordered": "tests/broker/test_pop_order_in_simulator.py",
    "rmqha.broker.pop.aio.peek_requests": "tests/broker/test_pop_in_simulator.py",
    "rmqha.broker.pop.aio.pop_answers": "tests/broker/test_pop_in_simulator.py",
    "rmqha.broker.pop.aio.pop_positions": "tests/broker/test_pop_in_simulator.py",
    "rmqha.broker.pop.aio.pop_requests": "tests/broker/test_pop_in_simulator.py",
    "rmqha.broker.pop.aio.queue_takes": "tests/broker/test_pop_in_simulator.py",
    "rmqha.broker.pop.aio.waiting_pops": "tests/broker/test_pop_in_simulator.py",
    "rmqha.broker.pull.aio.asked": "tests/broker/test_consumer_requests.py",
    "rmqha.broker.pull.aio.waiting_pulls": "tests/broker/test_crowds.py",
    "rmqha.broker.send.aio.producer_requests": "tests/broker/test_producer_services.py",
    "rmqha.broker.send.aio.reply_requests": "tests/interop/test_producers.py",
    "rmqha.broker.send.aio.stray_requests": "tests/broker/test_old_clients.py",
    "rmqha.broker.sync.aio.positions": "tests/broker/test_positions_in_simulator.py",
    "rmqha.broker.topics.aio.account_file": "tests/broker/test_accounts_in_simulator.py",
    "rmqha.broker.topics.aio.group_file": "tests/broker/test_metadata_in_simulator.py",
    "rmqha.broker.topics.aio.topic_file": "tests/broker/test_metadata_in_simulator.py",
    "rmqha.cli.broker_agent": "tests/cli/test_demo.py",
    "rmqha.controller.metadata.decide_alter": "tests/controller/metadata/test_requests.py",
    "rmqha.controller.metadata.decide_clean": "tests/controller/metadata/test_requests.py",
    "rmqha.namesrv.status_document": "tests/web/test_page.py",
    "rmqha.pipeline.commitlog.source": "tests/pipeline/test_reading.py",
    "rmqha.pipeline.jobs.controller_history": "tests/pipeline/test_controller_history.py",
    "rmqha.pipeline.live.source": "tests/pipeline/test_live.py",
    "rmqha.pipeline.live.stream": "tests/pipeline/test_live.py",
    "rmqha.remoting.aio.figures_client": "tests/web/test_page.py",
    "rmqha.sim.autopsy": "tests/sim/test_seeds.py",
    "rmqha.sim.disk_faults": "tests/sim/test_seeds.py",
    "rmqha.sim.topic_lives": "tests/sim/test_topic_mutants.py",
    "rmqha.verify.leases": "tests/sim/test_leases.py",
    "rmqha.verify.topic_lives": "tests/sim/test_topic_mutants.py",
    "rmqha.testing.in_process": "tests/testing/test_failover.py",
    "rmqha.verify.services": "tests/sim/test_service_mutants.py",
}
"""The tests of modules that are driven from further away: requests go in at the service's port."""

DOTTED = re.compile(r"rmqha(?:\.\w+)+")
IMPORTED = re.compile(r"from (rmqha(?:\.\w+)*) import (\([^)]*\)|[^\n]*)")
WORD = re.compile(r"\w+")
FILE_NAME = re.compile(r"([\w/]+)\.py\b")
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")
PERIOD = re.compile(r"(^|_)(MS|S)$")
"""A pause or a deadline is its module's own choice, and may have the length of another's."""


class Complaint(tuple[str, str]):
    """What it is about, and what is wrong with it."""

    __slots__ = ()


@dataclass
class Module:
    """One file, walked once."""

    name: str
    path: Path
    tree: ast.Module
    imports: set[str] = field(default_factory=set)
    uses: Counter[str] = field(default_factory=Counter)
    """How often each identifier is read, outside the places where it is defined."""
    own: dict[str, Counter[str]] = field(default_factory=dict)
    """The same within the definition of each name: a function that only calls itself is dead."""
    docstrings: list[tuple[int, str]] = field(default_factory=list)
    """Line and text, of modules, classes, functions, and of what the first two assign."""

    @property
    def room(self) -> str:
        """The folder below rmqha, or the file's own name."""
        return self.name.partition(".")[2].partition(".")[0]


@dataclass
class House:
    """The package, what starts its processes, and what tests say."""

    modules: dict[str, Module]
    entries: str
    tests: str

    @functools.cached_property
    def named_by_tests(self) -> set[str]:
        """Dotted names that stand in tests, imports spelt out; every prefix of each as well."""
        found = set(DOTTED.findall(self.tests))
        for origin, names in IMPORTED.findall(self.tests):
            found |= {f"{origin}.{name}" for name in WORD.findall(names)}
        for name in list(found):
            parts = name.split(".")
            found |= {".".join(parts[:end]) for end in range(2, len(parts))}
        return found


def _read(root: Path) -> House:
    modules = {}
    for path in sorted((root / "rmqha").rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        modules[name] = _walk(Module(name, path, ast.parse(path.read_text())))
    scripts = [path for path in (root / "bin").glob("*") if path.is_file()]
    entries = [path.read_text() for path in [*scripts, root / "pyproject.toml"] if path.exists()]
    here = Path(__file__)
    tests = [p.read_text() for p in sorted((root / "tests").rglob("*.py")) if p != here]
    return House(modules, "\n".join(entries), "\n".join(tests))


def _walk(module: Module) -> Module:
    _note_docstrings(module, module.tree)
    for statement in module.tree.body:
        uses: Counter[str] = Counter()
        for node in ast.walk(statement):
            reader = READERS.get(type(node))
            if reader is not None:
                uses.update(reader(node, module))
        module.uses.update(uses)
        for name in _defined(statement):
            module.own[name] = uses
    return module


def _read_import(node: ast.Import, module: Module) -> list[str]:
    module.imports |= {alias.name for alias in node.names}
    return []


def _read_import_from(node: ast.ImportFrom, module: Module) -> list[str]:
    names = [alias.name for alias in node.names]
    module.imports |= {str(node.module), *(f"{node.module}.{name}" for name in names)}
    return names


def _read_text(node: ast.Constant, module: Module) -> list[str]:
    """Forward references, getattr, format fields, and modules that are started by name."""
    text = node.value
    if not isinstance(text, str) or len(text) > 200:
        return []
    if "rmqha." in text:
        module.imports.update(DOTTED.findall(text))
    if text.isidentifier():
        return [text]
    return WORD.findall(text) if " " not in text or "[" in text or "|" in text else []


def _read_scope(node: ast.FunctionDef | ast.ClassDef, module: Module) -> list[str]:
    _note_docstrings(module, node)
    return []


READERS: dict[type[ast.AST], Callable[..., list[str]]] = {
    ast.Name: lambda node, _: [node.id] if isinstance(node.ctx, ast.Load) else [],
    ast.Attribute: lambda node, _: [node.attr],
    ast.keyword: lambda node, _: [node.arg] if node.arg else [],
    ast.Import: _read_import,
    ast.ImportFrom: _read_import_from,
    ast.Constant: _read_text,
    ast.ClassDef: _read_scope,
    ast.FunctionDef: _read_scope,
    ast.AsyncFunctionDef: _read_scope,
}
"""Identifiers that a node reads; what else is to be known goes into the module."""


def _note_docstrings(
    module: Module, scope: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
) -> None:
    documented = scope.body[:1]
    if isinstance(scope, ast.Module | ast.ClassDef):
        documented += [
            after
            for before, after in zip(scope.body, scope.body[1:], strict=False)
            if isinstance(before, ast.Assign | ast.AnnAssign)
        ]
    for statement in documented:
        match statement:
            case ast.Expr(value=ast.Constant(value=str(text)), lineno=line):
                module.docstrings.append((line, text))


def _defined(statement: ast.stmt) -> list[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case _:
            return []


def dead_modules(house: House) -> list[Complaint]:
    """Modules that nothing imports or starts; those for tests count what tests import."""
    used = {name for module in house.modules.values() for name in module.imports - {module.name}}
    used |= set(DOTTED.findall(house.entries))
    return [
        Complaint((name, "no module imports it and nothing starts it"))
        for name, module in house.modules.items()
        if name not in used
        and module.path.name not in ("__init__.py", "__main__.py")
        and not (_is_for_tests(module) and name in house.named_by_tests)
    ]


def _is_for_tests(module: Module) -> bool:
    return module.room in FOR_TESTS or module.path.stem == SPECIFICATION


def dead_names(house: House) -> list[Complaint]:
    """Functions, classes, constants and methods that only tests use, or nobody."""
    uses: Counter[str] = Counter()
    for module in house.modules.values():
        uses.update(module.uses)
    in_tests = set(WORD.findall(house.tests))
    in_entries = set(WORD.findall(house.entries))
    found = []
    for module in house.modules.values():
        known = in_entries | in_tests if _is_for_tests(module) else in_entries
        for name, own in [*module.own.items(), *_methods(module)]:
            used = uses[name] > own[name] or name in known or name.startswith(("__", "pytest_"))
            if not used:
                found.append(Complaint((f"{module.name}.{name}", "nothing but tests uses it")))
    return [found_ for found_ in found if not _is_called_elsewhere(house, found_[0])]


def _methods(module: Module) -> Iterator[tuple[str, Counter[str]]]:
    for statement in module.tree.body:
        if not isinstance(statement, ast.ClassDef):
            continue
        if CALLED_BY_LIBRARIES & {ast.unparse(base) for base in statement.bases}:
            continue
        for member in statement.body:
            if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                yield member.name, Counter()


def _is_called_elsewhere(house: House, dotted: str) -> bool:
    """Whether a decorator gives the function to a library that calls it."""
    origin, name = dotted.rsplit(".", 1)
    for statement in house.modules[origin].tree.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == name:
            return any(
                CALLING_DECORATORS & set(WORD.findall(ast.unparse(decorator)))
                for decorator in statement.decorator_list
            )
    return False


def same_names(house: House) -> list[Complaint]:
    """Two modules of one folder, its shells in ``aio`` included, that have one name."""
    rooms: dict[tuple[Path, str], list[str]] = defaultdict(list)
    for name, module in house.modules.items():
        folder = module.path.parent
        if module.path.name != "__init__.py":
            rooms[folder.parent if folder.name == "aio" else folder, module.path.name].append(name)
    return [
        Complaint((names[0], f"has the name of {names[1]}"))
        for names in rooms.values()
        if len(names) > 1
    ]


def constants(house: House) -> list[Complaint]:
    """Constants of one name and one literal value in two files."""
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for module in house.modules.values():
        for statement in module.tree.body:
            value = getattr(statement, "value", None)
            for name in _defined(statement) if isinstance(value, ast.expr) else ():
                if CONSTANT.fullmatch(name) and _is_literal(value) and not PERIOD.search(name):
                    places[name.lstrip("_"), ast.dump(value)].append(module.name)
    return [
        Complaint((name, f"the same in {' and '.join(found)}"))
        for (name, _), found in places.items()
        if len(found) > 1
    ]


def _is_literal(value: ast.expr | None) -> bool:
    """Numbers, texts and what is made of them without a name."""
    match value:
        case ast.Constant(value=bool() | None):
            return False
        case ast.Constant():
            return True
        case ast.UnaryOp(operand=inner):
            return _is_literal(inner)
        case ast.BinOp(left=left, right=right):
            return _is_literal(left) and _is_literal(right)
        case ast.Dict(keys=keys, values=values):
            return bool(keys) and all(key and _is_literal(key) for key in [*keys, *values])
        case ast.Tuple(elts=parts) | ast.Set(elts=parts) | ast.List(elts=parts):
            return bool(parts) and all(_is_literal(part) for part in parts)
        case _:
            return False


def fragments(house: House) -> list[Complaint]:
    """Docstrings whose first paragraph is no sentence.

    A sentence has three words, begins with a capital, a figure, code or a name, and ends with a
    full stop. Whether it has a verb only a reader can say.
    """
    return [
        Complaint((f"{module.name}:{line}", f"is no sentence: {text.strip()[:60]!r}"))
        for module in house.modules.values()
        for line, text in module.docstrings
        if not is_sentence(text)
    ]


def is_sentence(text: str) -> bool:
    """Whether a docstring's first paragraph could be one."""
    first = text.strip().split("\n\n")[0].strip()
    words = WORD.findall(first)
    if len(words) < WORDS_MIN or sum(not word.isdigit() for word in words) < WORDS_MIN - 1:
        return False
    begins = not words[0].islower() or not first[0].isalpha() or words[0] in LOWER_CASE_NAMES
    return begins and first.rstrip("`\"')").endswith((".", "?", "!", ":"))


def untested(house: House) -> list[Complaint]:
    """Modules that no test names, nor any module that a test names imports.

    One step: a shell is often reached by the service that it belongs to, and a test of that one
    is its test. Two steps away nobody would know where to look.
    """
    written = set(FILE_NAME.findall(house.tests))
    named = {*house.named_by_tests, *DOTTED.findall(house.entries)}
    named |= {name for name in house.modules if "/".join(name.split(".")[1:]) in written}
    reached = named | {
        other for name in named & house.modules.keys() for other in house.modules[name].imports
    }
    return [
        Complaint((name, "no test names it, nor a module that imports it"))
        for name, module in house.modules.items()
        if name not in reached | TESTED_THROUGH.keys() and module.path.name != "__init__.py"
    ]


CHECKS: dict[str, Callable[[House], list[Complaint]]] = {
    "dead_modules": dead_modules,
    "dead_names": dead_names,
    "same_names": same_names,
    "constants": constants,
    "fragments": fragments,
    "untested": untested,
}

PLANTED = {
    "dead_modules": {
        "rmqha/store/forgotten.py": '"""A module that nobody imports."""\n',
        "tests/test_forgotten.py": "from rmqha.store import forgotten\n",
    },
    "dead_names": {
        "rmqha/store/forgotten.py": "def left():\n    return left()\n",
        "rmqha/store/other.py": "from rmqha.store import forgotten\n",
        "tests/test_forgotten.py": "from rmqha.store.forgotten import left\nleft()\n",
    },
    "same_names": {"rmqha/store/page.py": "", "rmqha/store/aio/page.py": ""},
    "constants": {"rmqha/ha/one.py": "PAGE = 4096\n", "rmqha/store/two.py": "_PAGE = 4096\n"},
    "fragments": {"rmqha/store/short.py": 'def one():\n    """26."""\n'},
    "untested": {
        "rmqha/store/near.py": "from rmqha.store import far\n",
        "rmqha/store/far.py": "from rmqha.store import farther\n",
        "rmqha/store/farther.py": "",
        "tests/test_near.py": "from rmqha.store import near\n",
    },
}
"""What each check has to find, in a house that is tidy otherwise."""
SUBJECTS = {
    "dead_modules": {"rmqha.store.forgotten"},
    "dead_names": {"rmqha.store.forgotten.left"},
    "same_names": {"rmqha.store.aio.page"},
    "constants": {"PAGE"},
    "fragments": {"rmqha.store.short:2"},
    "untested": {"rmqha.store.farther"},
}


@functools.cache
def _house() -> House:
    return _read(ROOT)


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
def test_house_when_looked_at_then_it_is_tidy(check: str) -> None:
    """What is dead, twice or unsaid would be read, mended and believed by everybody after us."""
    complaints = CHECKS[check](_house())
    assert [f"{who}: {what}" for who, what in complaints if who not in LEFT.get(check, ())] == []


@pytest.mark.slow
def test_far_module_when_it_names_its_test_then_both_are_there() -> None:
    """A table that points nowhere tells the next reader to look in vain."""
    modules = _house().modules
    missing = {name for name in TESTED_THROUGH if name not in modules}
    missing |= {path for path in TESTED_THROUGH.values() if not (ROOT / path).exists()}
    assert missing == set()


@pytest.mark.parametrize("check", CHECKS)
def test_check_when_an_example_is_planted_then_it_is_found(check: str, tmp_path: Path) -> None:
    """A check that finds nothing may be blind."""
    for name, text in PLANTED[check].items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert {who for who, _ in CHECKS[check](_read(tmp_path))} == SUBJECTS[check]


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("26.", False),
        ("Bytes.", False),
        ("15, 16 and 17.", False),
        ("begin with a small letter.", False),
        ("It has no full stop", False),
        ("Answer a pull (11).", True),
        ("brokerStatus: all figures of a broker.", True),
        ("``size`` in bytes, of the file.\n\nMore of it", True),
    ],
)
def test_docstring_when_read_then_fragments_are_told_from_sentences(text: str, good: bool) -> None:
    """A rule that lets numbers pass, or refuses plain sentences, would be switched off."""
    assert is_sentence(text) is good


@pytest.mark.costly
def test_house_when_read_then_nothing_is_missing() -> None:
    """An empty glob would make every check pass."""
    house = _house()
    assert len(house.modules) > 400
    assert len(house.named_by_tests) > 400
    assert "rmqha.cli.mqcontroller" in house.entries
