"""Every command of README and docs is run as it stands there, or says why it cannot be."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from pathlib import Path

import click
import pytest

from rmqha.cli import scripts
from tests.blocks import BadBlock, Block, blocks_of, script, usages

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = {
    str(page.relative_to(ROOT)): blocks_of(str(page.relative_to(ROOT)), page.read_text())
    for page in PAGES
}
ALL = [block for blocks in BLOCKS.values() for block in blocks]
RUN_S = 100
NOT_RUN_MAX = 10
"""Commands that no test runs. Lower it when one is; raising it wants a good reason."""
SAYS = {
    "README.md": ("order 1", "order 2", "master_elected", "1 passed"),
    "docs/FIXTURE.md": ("1 passed", "<acked b'order 1' at TestTopic/", "id 1 master alive"),
}
"""What a page that is run must have said, so that a block which does nothing is noticed."""
PROGRAMS = {"mqdoctor": "doctor"}
"""Scripts in bin/ whose subcommand has another name."""


def test_blocks_when_read_then_each_has_its_mark_its_language_and_its_line() -> None:
    """The whole check stands on this."""
    page = """Text
```
bin/demo --once
```
<!-- not run: needs root -->
```bash
useradd me
```
  <!-- synopsis -->
  ```sh
  bin/up
  ```
"""
    one, two, three = blocks_of("p", page)
    assert (one.line, one.language, one.text, one.mark) == (2, "", "bin/demo --once\n", "")
    assert (two.mark, two.reason, two.language) == ("not run", "needs root", "bash")
    assert (three.mark, three.reason, str(three)) == ("synopsis", "", "p:10")


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ("```\nno end\n", "p:1: this block has no end"),
        ("<!-- not run: x -->\n\n```\na\n```\n", "p:2: no block follows"),
        ("<!-- not run: x -->", "p:1: no block follows"),
        ("<!-- not run -->\n```\na\n```\n", "p:1: 'not run' without a reason"),
        ("```yaml\na: b\n```\n", "p:1: nobody runs 'yaml'"),
    ],
)
def test_blocks_when_they_cannot_be_told_then_the_line_is_named(page: str, says: str) -> None:
    """A mark that has slipped would let a block go unrun."""
    with pytest.raises(BadBlock, match=re.escape(says)):
        blocks_of("p", page)


def test_usage_when_read_then_its_alternatives_options_and_no_remark() -> None:
    """Words of a remark are no commands."""
    (one,) = usages("bin/mqadmin clusterList | topicList [-c]      -n NAMESRV -k '-x'\n")
    assert one.program == "bin/mqadmin"
    assert one.commands == ("clusterList", "topicList")
    assert one.options == ("-c", "-n", "-k")
    (one,) = usages("bin/mqadmin deleteAcl [-r R] | getAcl  -s User:ME -a X | -c C\n")
    assert (one.commands, one.options) == (("deleteAcl", "getAcl"), ("-r", "-s", "-a", "-c"))
    (one,) = usages("bin/simulate 1 --count 20 -j 2   a batch, not --all of them\n")
    assert (one.commands, one.options) == (("1",), ("--count", "-j"))


def test_script_when_made_then_marked_blocks_are_left_out() -> None:
    """And tests of pytest are run by it, everything below /tmp in the test's own folder."""
    page = "```\ncat /tmp/x\n```\n<!-- shown: y -->\n```\nrm all\n```\n```python\ndef test_a(): 1\n```\n"
    got = script(blocks_of("p", page), "/here")
    assert "cat /here/x\n" in got
    assert "rm all" not in got
    assert ".venv/bin/python -m pytest -q -p no:cacheprovider test_block_1.py" in got
    assert got.startswith("set -eu\n")


def test_pages_when_counted_then_few_commands_are_not_run() -> None:
    """A mark is quickly set, and then nobody looks at the command again."""
    counted = Counter(block.mark or "run" for block in ALL)
    assert counted["not run"] <= NOT_RUN_MAX, counted
    assert counted["run"] >= 12, counted


@pytest.mark.parametrize("block", [one for one in ALL if one.mark == "tested"], ids=str)
def test_block_when_tests_are_named_then_they_read_the_page(block: Block) -> None:
    """The tests may be gone, or have a copy that has grown old."""
    path, _, name = block.reason.partition("::")
    text = (ROOT / path).read_text()
    assert Path(block.page).name in text
    assert not name or f"def {name}(" in text


def _options(command: click.Command, context: click.Context) -> set[str]:
    return {
        name
        for parameter in command.get_params(context)
        for name in (*parameter.opts, *parameter.secondary_opts)
    }


def _known_options(program: str, words: tuple[str, ...]) -> set[str]:
    """All options of a program and of the commands that are named.

    Raises:
        AssertionError: there is no such program or command.
    """
    assert (ROOT / program).is_file(), f"no {program}"
    name = PROGRAMS.get(Path(program).name, Path(program).name)
    if name not in scripts.COMMANDS:
        bench = ROOT / "tests" / "bench" / f"bench_{words[0]}.py" if words else ROOT / program
        assert bench.is_file(), f"{program} has no {words[0]}"
        return set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", bench.read_text()))
    if (name, *words[:1]) == ("explore", "ha"):
        name, words = "explore-replicas", ()
    command = scripts.load(name)
    context = click.Context(command)
    found = _options(command, context)
    if isinstance(command, click.Group):
        for word in words:
            sub = command.get_command(context, word)
            assert sub is not None, f"{program} has no {word}"
            found |= _options(sub, context)
    return found


@pytest.mark.parametrize("block", [one for one in ALL if one.mark == "synopsis"], ids=str)
def test_synopsis_when_it_names_commands_and_options_then_they_exist(block: Block) -> None:
    """An option that was renamed is still in the page that everybody copies from."""
    for usage in usages(block.text):
        unknown = set(usage.options) - _known_options(usage.program, usage.commands)
        assert not unknown, f"{block}: {usage.program} {usage.commands} has no {unknown}"


@pytest.mark.parametrize(
    ("program", "words", "wrong"),
    [
        ("bin/bench", ("nosuch",), "has no nosuch"),
        ("bin/mqadmin", ("noSuch",), "has no noSuch"),
        ("bin/nosuch", (), "no bin/nosuch"),
    ],
)
def test_synopsis_when_something_does_not_exist_then_it_is_found(
    program: str, words: tuple[str, ...], wrong: str
) -> None:
    """A check that finds nothing may be blind."""
    with pytest.raises(AssertionError, match=wrong):
        _known_options(program, words)


def _clean_copy(folder: Path) -> Path:
    """What git has, as a fresh clone would, and the libraries that are installed already."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True
    ).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if name.startswith(("tests/", "docs/")) or not (ROOT / name).exists():
            continue
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    (folder / ".venv").symlink_to(ROOT / ".venv")
    return folder


def _own_network() -> list[str]:
    """Words that give a command ports of its own, where the kernel lets them."""
    words = [
        "unshare",
        "--map-root-user",
        "--net",
        "sh",
        "-c",
        'ip link set lo up; exec "$@"',
        "sh",
    ]
    try:
        done = subprocess.run([*words, "true"], capture_output=True, check=False, timeout=10)
    except FileNotFoundError:
        return []
    return words if done.returncode == 0 else []


def _run(blocks: list[Block], folder: Path) -> tuple[int, str]:
    """Type the blocks, one after another; whatever they left running is ended."""
    (folder / "clone").mkdir()
    (folder / "tmp").mkdir()
    clone = _clean_copy(folder / "clone")
    # Libraries are there before the network is not.
    subprocess.run([ROOT / "bin" / "mqadmin", "--version"], check=True, capture_output=True)
    text = script(blocks, str(folder / "tmp"))
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "100"}
    environment.pop("NAMESRV_ADDR", None)
    # Those who clean up what other runs of pytest left must not meet.
    environment["PYTEST_DEBUG_TEMPROOT"] = str(folder / "tmp")
    with (folder / "said").open("w+b") as said:
        child = subprocess.Popen(
            [*_own_network(), "bash", "-c", text],
            cwd=clone, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            start_new_session=True,
        )  # fmt: skip
        try:
            code = child.wait(RUN_S)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            # One that failed midway has left its servers running.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        said.seek(0)
        return code, said.read().decode(errors="replace")


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize(
    "page", [name for name, blocks in BLOCKS.items() if any(not one.mark for one in blocks)]
)
def test_page_when_its_commands_are_typed_in_a_clean_folder_then_they_work(
    page: str, tmp_path: Path
) -> None:
    """The first thing that a user does with us is to copy them."""
    code, said = _run(BLOCKS[page], tmp_path)
    assert code == 0, said[-4000:]
    for words in SAYS[page]:
        assert words in said, said[-4000:]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "code"), [("false\ntrue\n", 1), ("bin/mqadmin noSuch\n", 2), ("echo $UNSET_WORD\n", 1)]
)
def test_page_when_a_command_fails_then_the_page_fails(
    text: str, code: int, tmp_path: Path
) -> None:
    """A script goes on behind a failure unless it is told not to."""
    got, said = _run([Block("p", 1, "bash", text)], tmp_path)
    assert got == code, said
