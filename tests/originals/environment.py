"""The original packages in an environment of their own, `.venv.originals`: for these tests and for the benchmarks.

Installed from PyPI, by name, without what they declare: that is for the text encoders and trainers of whole systems,
and `loading.part` takes the definitions of an autoencoder alone. The environment sees what this repository's holds, so
both run the same torch.
"""

import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".venv.originals"
PYTHON = HOME / "bin" / "python"
SOURCES = HOME / "sources"

# By what is compared: what is installed, and what is unpacked from its source archive, which holds more.
PACKAGES = {
    "dit": ["timm==1.0.19"],
    "kl": [],
    "dvae": ["dalle-pytorch==1.6.6"],
    "vqgan": ["muse-maskgit-pytorch==0.3.5", "ema-pytorch==0.8.3"],
    "vq_ar": [],
    "taming": ["taming-transformers-rom1504==0.0.6"],
    "decoder": ["dalle2-pytorch==1.15.6", "kornia==0.8.1", "kornia_rs==0.2.0", "ema-pytorch==0.8.3"],
}
ARCHIVES = {"vq_ar": "genie2-pytorch==0.0.21"}  # the autoencoder is in its script, not in the package


class MissingError(Exception):
    """The original packages cannot be had; says why."""


def make(names: list[str]) -> Path:
    """Make the environment, with the packages that some comparisons need, and return its Python.

    Raises:
        MissingError: a package cannot be installed.
    """
    known = HOME / "made"
    if not known.exists():
        venv.EnvBuilder(with_pip=True, clear=True).create(HOME)
        known.touch()
    _packages_of(PYTHON).joinpath("ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
    for each in names:
        if packages := PACKAGES[each]:
            _pip("install", *packages)
        archive = ARCHIVES.get(each)
        if archive and not unpacked(archive).exists():
            _pip("download", "--no-binary", ":all:", "--dest", str(SOURCES), archive)
            name, version = archive.replace("-", "_").split("==")
            with tarfile.open(SOURCES / f"{name}-{version}.tar.gz") as found:
                found.extractall(SOURCES, filter="data")
    return PYTHON


def unpacked(archive: str) -> Path:
    """Return the folder of a source archive, NAME==VERSION."""
    return SOURCES / archive.replace("-", "_").replace("==", "-")


def _packages_of(python: Path) -> Path:
    found = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(found.stdout.strip())


def _pip(command: str, *arguments: str) -> None:
    done = subprocess.run(
        [PYTHON, "-m", "pip", command, "--quiet", "--no-deps", *arguments], capture_output=True, text=True
    )
    if done.returncode:
        why = done.stderr.strip().splitlines()
        raise MissingError(f"`pip {command} {' '.join(arguments)}` failed: {why[-1] if why else 'no message'}")
    sys.stderr.write(done.stdout)
