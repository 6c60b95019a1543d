"""What is shown while a run goes on; the console is a terminal here, and time is given."""

import io

import pytest
from rich.console import Console

from testbed.cli import progress as module
from testbed.cli.options import console as make_console
from testbed.cli.progress import PLAIN_S, REFRESH_S, Progress
from testbed.playbook.loader import load_playbook

FAILOVER = "playbooks/failover.yaml"
SWEEP = "playbooks/failover-policies.yaml"


@pytest.fixture
def shown(monkeypatch, request):
    """A progress, the text that it has printed, and a clock to set."""
    now = [100.0]
    monkeypatch.setattr(module, "machine_s", lambda: now[0])

    def make(path, *, terminal, width=100, encoding="utf-8", verbose=False):
        raw = io.BytesIO()
        text = io.TextIOWrapper(raw, encoding=encoding, write_through=True)
        to = Console(
            file=text, force_terminal=terminal, width=width, height=20, no_color=True,
            highlight=False, legacy_windows=False, _environ={},
        )  # fmt: skip
        root = request.config.rootpath
        playbook, _ = load_playbook(root / path, trials=4)
        it = Progress(to, playbook, verbose=verbose, virtual=False)
        return it, (lambda: raw.getvalue().decode(encoding)), now

    return make


def finished(trial, recovery, *, warmup=False, status="passed", error=None):
    return {
        "kind": "trial.finished", "t": 1.0, "trial": trial, "warmup": warmup, "status": status,
        "measures": {"recovery": recovery}, "error": error,
        "phases": {"detect": 1e-3, "decide": None, "light": 5e-3},
    }  # fmt: skip


def test_a_terminal_shows_the_trial_the_statistics_and_the_last_waterfall(shown):
    progress, printed, now = shown(FAILOVER, terminal=True)
    with progress:
        for trial, recovery in enumerate((0.1, 0.3)):
            now[0] += 2 * REFRESH_S
            progress(finished(trial, recovery))
        now[0] += 2 * REFRESH_S
        progress({"kind": "task.started", "t": 2.0, "name": "watch it", "trial": 2})
    text = printed()
    assert "2/4 trials · last recovery 300 ms · watch it" in text
    assert "recovery: mean 200 ms, 100 ms – 300 ms, n 2" in text
    assert "detect 1.00 ms → light 5.00 ms" in text


def test_warm_up_trials_and_other_points_stay_out_of_the_statistics(shown):
    progress, printed, now = shown(SWEEP, terminal=True)
    with progress:
        progress({"kind": "point.started", "t": 0, "point": 0, "vars": {"policy": "lumion"}})
        progress(finished(0, 9.0))
        progress({"kind": "point.started", "t": 0, "point": 1, "vars": {"policy": "restart"}})
        progress(finished(1, 5.0, warmup=True))
        progress(finished(2, 1.0))
        now[0] += 2 * REFRESH_S
        progress(finished(3, 2.0))
    text = printed()
    assert "point 2/12: policy=restart" in text
    assert "mean 1.50 s, 1.00 s – 2.00 s, n 2" in text


def test_drawing_is_throttled(shown):
    progress, printed, _ = shown(FAILOVER, terminal=False)
    with progress:
        for trial in range(1000):
            progress(finished(trial, 0.1))
    assert printed().count("trials") == 1


def test_without_a_terminal_there_is_a_line_now_and_then_and_one_a_failure(shown):
    progress, printed, now = shown(FAILOVER, terminal=False)
    with progress:
        progress({"kind": "task.started", "t": 0.0, "name": "watch it", "trial": 0})
        progress(finished(0, None, status="failed", error={"message": "ocs refused [x]"}))
        now[0] += 2 * PLAIN_S
        progress(finished(1, 0.1))
    lines = printed().splitlines()
    assert lines[0].strip() == "1.00 s trial 0 failed: ocs refused [x]"
    assert lines[-1] == "2/4 trials · 1 failed · last recovery 100 ms · watch it"
    assert "\x1b" not in printed()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_narrow_terminal_of_another_encoding_is_kept_to(shown, encoding):
    progress, printed, now = shown(FAILOVER, terminal=True, width=30, encoding=encoding)
    with progress:
        for trial in range(3):
            now[0] += 2 * REFRESH_S
            progress(finished(trial, 1e-5))
    assert "3/4 trials" in printed()


def test_nobody_reading_the_progress_does_not_disturb_the_run(monkeypatch):
    """rich would end the process; the run must clean up, and tell its verdict."""

    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr("sys.stderr", Gone())
    silent = make_console(stderr=True)
    silent.print("nobody hears this")
    silent.print("nor this")
    monkeypatch.setattr("sys.stdout", Gone())
    with pytest.raises(BrokenPipeError):
        make_console().print("told to the command line")
