"""Finding lines of a log that is larger than what is read at once."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.store import log as log_module
from testbed.store.log import kinds_pattern, whole_lines

LINES = st.lists(
    st.sampled_from(
        [b'{"t":1,"kind":"trial.started"}', b'{"t":1,"kind":"log","m":"\xc2\xb5"}', b"", b"\r{}",
         b'{"kind":"trial.finished","x":{"kind":"trial.y"}}']
    ),
    max_size=12,
)  # fmt: skip


@given(lines=LINES, torn=st.sampled_from([b"", b'{"kind":"trial.fin']), size=st.integers(1, 60))
def test_lines_are_the_same_whatever_is_read_at_once(
    lines: list[bytes], torn: bytes, size: int
) -> None:
    content = b"".join(line + b"\n" for line in lines) + torn
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_module, "_CHUNK_BYTES", size)
        everything = list(whole_lines(io.BytesIO(content)))
        trials = list(whole_lines(io.BytesIO(content), kinds_pattern("trial.")))
    assert [line for _, line in everything] == [line + b"\n" for line in lines]
    assert trials == [entry for entry in everything if b'"kind":"trial.' in entry[1]]
    for offset, line in everything:
        assert content[offset : offset + len(line)] == line
