"""Folders of local servers: nobody but their owner reads what is in them."""

import stat

import pytest

from streamtopic.local import private_folder


@pytest.mark.parametrize(("mode", "closed"), [(0o640, 0o600), (0o604, 0o600), (0o777, 0o700), (0o400, 0o400)])
def test_what_a_group_or_others_may_do_is_taken_away(tmp_path, mode, closed):
    """Those that were open are counted, and the owner's rights stay; an open secret key is refused where it is used."""
    file, key = tmp_path / "data", tmp_path / "signing.key"
    for path in (file, key):
        path.touch()
        path.chmod(mode)
    tmp_path.chmod(0o700)
    assert private_folder(tmp_path) == (mode != closed)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, key)] == [closed, mode]
