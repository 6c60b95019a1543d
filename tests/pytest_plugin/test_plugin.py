"""The pytest plugin, used as a lab uses it: by the example of its page."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "test-with-pytest.md"


def pytest_in(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_example_of_the_page_passes_and_reports_its_measures(tmp_path):
    """TC18: what a run cleans up has the engine's deadlines, whatever the test makes of it."""
    example = re.search(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[1]
    (tmp_path / "test_failover.py").write_text(example)
    (tmp_path / "playbooks").symlink_to(ROOT / "playbooks")
    done = pytest_in(tmp_path, "--junitxml", "report.xml")
    assert done.returncode == 0, done.stdout
    properties = {
        p.get("name"): p.get("value")
        for p in ET.parse(tmp_path / "report.xml").getroot().iter("property")
    }
    assert float(properties["testbed.recovery.median"]) > 0
    assert properties["testbed.backend"] == "mock"


def test_the_rack_is_chosen_by_the_option(tmp_path):
    (tmp_path / "test_it.py").write_text("def test_it(rack):\n    assert rack.name == 'bench4'\n")
    assert pytest_in(tmp_path).returncode == 1
    bench = str(ROOT / "playbooks" / "racks" / "bench4.yaml")
    assert pytest_in(tmp_path, "--testbed-rack", bench).returncode == 0


def test_a_playbook_keeps_its_own_rack_and_the_place_of_its_file(tmp_path):
    """Without the option; also where faults are added, which makes a copy elsewhere."""
    bench = (ROOT / "playbooks" / "racks" / "bench4.yaml").read_text("utf-8")
    lab = tmp_path / "lab"
    lab.mkdir()
    (lab / "bench.yaml").write_text(bench)
    (lab / "book.yaml").write_text(
        "schema: testbed/v1\nname: book\nrack: bench.yaml\n"
        "tasks:\n  - fabric.connect: {ring: [host0, host1]}\n"
    )
    (tmp_path / "test_it.py").write_text(
        "FAULT = {'device': 'mesh0', 'kind': 'refuse', 'operation': 'apply'}\n"
        "def test_it(run_playbook):\n"
        "    assert run_playbook('lab/book.yaml').summary()['rack'] == 'bench4'\n"
        "    summary = run_playbook('lab/book.yaml', faults=[FAULT]).summary()\n"
        "    assert summary['error']['device'] == 'mesh0'\n"
    )
    done = pytest_in(tmp_path)
    assert done.returncode == 0, done.stdout


def test_nothing_is_imported_before_it_is_used(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import sys\ndef test_it():\n"
        "    assert not {'trio', 'pydantic', 'testbed.engine'} & set(sys.modules)\n"
    )
    assert pytest_in(tmp_path, "-p", "no:benchmark", "-p", "no:hypothesispytest").returncode == 0
