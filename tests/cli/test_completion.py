"""What the shell offers at a Tab."""

import pytest

BENCH = "playbooks/racks/bench4.yaml"


def offered(cli, *words):
    done = cli(
        _TESTBED_COMPLETE="complete_bash",
        COMP_WORDS=" ".join(["testbed", *words]),
        COMP_CWORD=str(len(words)),
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("swi",), ["switch"]),
        (("switch", "connect", "host1.p"), ["host1.p0", "host1.p1"]),
        (("switch", "connect", "host0.p0", "host3.p"), ["host3.p0", "host3.p1"]),
        (("switch", "connect", "--rack", BENCH, "host2.p"), ["host2.p0", "host2.p1"]),
        (("switch", "power", "--rack", BENCH, "--switch", "m"), ["mesh0"]),
        (("power", "off", "host"), ["host0", "host1", "host2", "host3"]),
        (("power", "off", "pdu.1"), ["pdu.1"]),
        (("host", "health", "host3"), ["host3"]),
        (("status", "--rack", "mo"), ["mock"]),
        (("run", "playbooks/sm"), ["playbooks/smoke.yaml"]),
        (("switch", "connect", "--rack", "no-such.yaml", "h"), []),
        (("switch", "connect", "--rack", "README.md", "h"), []),
    ],
)
def test_names_are_offered(cli, words, expected):
    assert offered(cli, *words) == expected


def test_runs_are_offered_out_of_the_folder_that_is_meant(cli, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    for folder, name in ((cli.results, "20260101-a"), (elsewhere, "20260102-b")):
        (folder / name).mkdir(parents=True)
    assert offered(cli, "results", "show", "20") == ["20260101-a"]
    assert offered(cli, "results", "show", "--results", str(elsewhere), "20") == ["20260102-b"]
    assert offered(cli, "results", "show", "la") == ["latest"]
