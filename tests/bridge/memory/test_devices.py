import pytest

from h2o_pack.devices.catalogue import catalogue
from h2o_pack.errors import ExitCode, UserError
from tests.messages import refused, says

OWN = """
[[memory]]
name = "lab"
what = "a device of our own"

[[device]]
identifiers = ["iPhone99,1"]
name = "iPhone Next"
chip = "A19 Pro"
memory = "lab"

[[number]]
of = "lab"
what = "entitled"
value = 9
unit = "GiB"
kind = "measured"
source = "our lab"
os_version = "iOS 27.1"

[[number]]
of = "iPhone16,1"
what = "entitled"
value = 5000.0
unit = "MB"
kind = "measured"
source = "our lab"
"""
BROKEN = {
    'kind = "measured"': ('kind = "guessed"', "Invalid enum value 'guessed' - at `$.kind`"),
    'unit = "GiB"': ('unit = "GB/s"', '"GB/s" is not a unit of entitled'),
    'of = "lab"': ('of = "lob"', 'Did you mean "lab"?'),
    'chip = "A19 Pro"': ('chip = "A20"', '[[device]] iPhone Next: chip = "A20" is not one of'),
}


def own_file(tmp_path, text: str = OWN):
    path = tmp_path / "own.toml"
    path.write_text(text)
    return path


def test_every_device_has_its_memory_and_every_limit_its_source():
    devices = catalogue().all_devices()
    assert len({(device.identifier, device.storage) for device in devices}) == len(devices) > 89
    assert {device.name for device in devices if device.ram is None} == {"iPhone Duo"}
    assert {device.chip for device in devices if device.bandwidth is None} == {"A20 Pro"}
    for device in devices:
        memory = device.ram or 0
        for amount in (device.limit, device.limit_entitled):
            assert amount is None or 0.2 * memory < amount < memory
        assert all(number.source and number.kind for number in device.numbers)
        default, entitled = device.limit, device.limit_entitled
        assert default is None or entitled is None or default <= entitled


def test_the_memory_of_an_ipad_pro_depends_on_its_storage():
    memories = {device.storage: device.ram for device in catalogue().find("iPad16,3")}
    assert memories == {"256-512 GB": 8 << 30, "1-2 TB": 16 << 30}


def test_a_part_of_a_name_finds_all_that_have_it():
    devices = catalogue().find("iphone 16")
    assert [device.name for device in devices] == ["iPhone 16"]
    assert len(catalogue().find("iPad Pro 13-inch")) == 8


def test_a_users_file_adds_devices_and_overrides_numbers(tmp_path):
    devices = catalogue(own_file(tmp_path))
    (new,) = devices.find("iPhone Next")
    assert new.limit_entitled == 9 << 30
    assert new.bandwidth == 76_800_000_000
    (overridden,) = devices.find("iPhone16,1")
    assert overridden.limit_entitled == 5_000_000_000
    assert devices.find("iPhone16,2")[0].limit_entitled == 6_442_450_944


def test_the_file_is_found_by_the_environment_or_in_the_users_configuration(
    tmp_path, monkeypatch
):
    folder = tmp_path / "config" / "h2o-pack"
    folder.mkdir(parents=True)
    (folder / "devices.toml").write_text(OWN)
    assert catalogue().find("iPhone99,1")
    text = OWN.replace("iPhone99,1", "iPhone98,1")
    monkeypatch.setenv("H2O_PACK_DEVICES", str(own_file(tmp_path, text)))
    assert catalogue().find("iPhone98,1")
    with pytest.raises(UserError):
        catalogue().find("iPhone99,1")


@pytest.mark.parametrize("part", BROKEN)
def test_a_wrong_entry_is_named_with_its_file(tmp_path, part):
    wrong, message = BROKEN[part]
    assert part in OWN
    path = own_file(tmp_path, OWN.replace(part, wrong, 1))
    with pytest.raises(UserError) as error:
        catalogue(path)
    assert error.value.where.startswith(str(path))
    assert message in str(error.value)


def test_a_file_that_was_named_must_be_there(tmp_path):
    says(refused(catalogue, tmp_path / "none.toml", code=ExitCode.USAGE))
