import pytest

from bertflow.errors import InputError
from bertflow.serving import Keys, Limits, read_keys


def test_a_key_is_held_whatever_the_case_of_its_scheme():
    keys = Keys(["first-key", "second-key"])
    assert keys
    assert keys.hold(b"Bearer second-key")
    assert keys.hold(b"bearer first-key")
    for shown in (b"", b"Bearer", b"Bearer ", b"first-key", b"Basic first-key", b"Bearer first-ke", b"Bearer \xff"):
        assert not keys.hold(shown)


def test_no_keys_hold_nothing():
    assert not Keys()
    assert not Keys().hold(b"Bearer ")


@pytest.mark.parametrize("key", ["short", "with a blank in it", "über-schlüssel", "line\nbreak-line"])
def test_a_key_that_cannot_be_sent_is_refused_and_not_shown(key):
    with pytest.raises(InputError, match="Key 1 of 1 cannot be used") as refused:
        Keys([key])
    assert key not in str(refused.value)


def test_keys_come_from_file_and_environment(tmp_path, monkeypatch):
    file = tmp_path / "keys.txt"
    file.write_text("# of the search team\nfrom-the-file\n\n", encoding="utf-8")
    monkeypatch.setenv("BERTFLOW_API_KEYS", "from-the-environment, another-one")
    keys = read_keys(file)
    assert all(keys.hold(b"Bearer " + key) for key in (b"from-the-file", b"from-the-environment", b"another-one"))
    monkeypatch.delenv("BERTFLOW_API_KEYS")
    assert not read_keys(None)


def test_a_file_without_keys_does_not_open_the_service(tmp_path):
    file = tmp_path / "keys.txt"
    file.write_text("# none yet\n", encoding="utf-8")
    with pytest.raises(InputError, match="holds no key"):
        read_keys(file)
    with pytest.raises(InputError, match="cannot be read"):
        read_keys(tmp_path / "absent.txt")


@pytest.mark.parametrize("name", ["texts", "characters", "body", "queue", "batch_tokens"])
@pytest.mark.parametrize("value", [0, -1, True, 1.5])
def test_limits_are_whole_numbers_from_one(name, value):
    with pytest.raises(InputError, match=name):
        Limits(**{name: value})


def test_a_queue_that_no_full_request_fits_is_refused():
    with pytest.raises(InputError, match="queue"):
        Limits(texts=10, queue=9)
