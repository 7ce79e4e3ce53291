#!/usr/bin/env python3
"""Compile kernels/*.cu to the PTX that is checked in beside them.

    kernels/build.py            write kernels/*.ptx
    kernels/build.py --check    compare instead; exit status 1 where a file differs

Needs Python 3 with pip and Linux on x86-64; no GPU, no CUDA toolkit. NVRTC comes from its Python
package, kept under target/nvrtc, at one pinned version: an older or newer one writes other PTX, and
this one writes PTX 8.0, which every driver since CUDA 12.0 takes.
"""

import argparse
import ctypes
import difflib
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import zipfile

PACKAGE = "nvidia-cuda-nvrtc-cu12"
VERSION = "12.0.140"
WHEEL_SHA256 = "8e94e991d85c422de4da87bdc7472fdc1364367bd4aace7000b559cd33122071"
PTX_VERSION = "8.0"
# Runs on every GPU since Turing. Unfused, so that a twin in Rust can compute the same bits.
OPTIONS = ["--gpu-architecture=compute_75", "--fmad=false"]

KERNELS = pathlib.Path(__file__).resolve().parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or KERNELS.parent / "target")
CACHE = TARGET / "nvrtc" / VERSION


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def pip():
    """The command of a pip: this Python's, or that of an environment of our own."""
    own = [sys.executable, "-m", "pip"]
    if subprocess.run([*own, "--version"], capture_output=True).returncode == 0:
        return own
    environment = CACHE.parent / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    return [str(environment / "bin" / "python"), "-m", "pip"]


def wheel():
    """Path of the pinned wheel, downloaded if it is not there yet."""
    CACHE.mkdir(parents=True, exist_ok=True)
    if not (found := list(CACHE.glob("*.whl"))):
        arguments = ["download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        arguments += ["--only-binary=:all:", "--platform=manylinux1_x86_64"]
        arguments += [f"--dest={CACHE}", f"{PACKAGE}=={VERSION}"]
        # Its output is no result of this script: keep standard output to those.
        subprocess.run([*pip(), *arguments], check=True, stdout=sys.stderr)
        found = list(CACHE.glob("*.whl"))
    path = found[0]
    if sha256(path) != WHEEL_SHA256:
        path.unlink()
        sys.exit(f"{path.name} is not the pinned file (SHA-256 differs); removed, try again")
    return path


def libraries():
    """Paths of the library and of the built-ins it loads, unpacked if they are not there yet."""
    folder = CACHE / "lib"
    names = {"libnvrtc.so.12", "libnvrtc-builtins.so.12.0"}
    if not all((folder / name).exists() for name in names):
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(wheel()) as archive:
            for member in archive.namelist():
                if (name := pathlib.PurePosixPath(member).name) in names:
                    part = folder / f"{name}.part"
                    part.write_bytes(archive.read(member))
                    part.rename(folder / name)
    return folder / "libnvrtc.so.12", folder / "libnvrtc-builtins.so.12.0"


class Nvrtc:
    def __init__(self):
        library, builtins = libraries()
        # NVRTC opens its built-ins by bare name; one that is loaded already is found.
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(str(library))
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status != 0:
            raise RuntimeError(f"{name}: {self.library.nvrtcGetErrorString(status).decode()}")

    def text(self, what, program):
        """What nvrtcGet<what> gives of a program."""
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{what}", program, buffer)
        return buffer.value.decode()

    def compile(self, source):
        """The PTX of a .cu file. Only the file's name goes in, not where it lies."""
        program = ctypes.c_void_p()
        self.call(
            "nvrtcCreateProgram", ctypes.byref(program), source.read_bytes(),
            source.name.encode(), 0, None, None,
        )
        options = (ctypes.c_char_p * len(OPTIONS))(*(option.encode() for option in OPTIONS))
        try:
            self.call("nvrtcCompileProgram", program, len(OPTIONS), options)
        except RuntimeError as error:
            sys.exit(f"{source.name}: {error}\n{self.text('ProgramLog', program)}")
        if log := self.text("ProgramLog", program).strip():
            print(log, file=sys.stderr)
        ptx = self.text("PTX", program)
        self.call("nvrtcDestroyProgram", ctypes.byref(program))
        version = re.search(r"^\.version (\S+)$", ptx, re.MULTILINE)
        if not version or version[1] != PTX_VERSION:
            sys.exit(f"{source.name}: PTX {version and version[1]} instead of {PTX_VERSION}")
        return ptx


def difference(path, ptx):
    """How the file differs from what it should be, in a few lines, or None."""
    if not path.exists():
        return f"{path.name} is missing"
    there = path.read_bytes()
    if there == ptx.encode():
        return None
    lines = list(difflib.unified_diff(
        there.decode(errors="replace").splitlines(), ptx.splitlines(),
        f"{path.name}, checked in", f"{path.name}, compiled", n=1, lineterm="",
    ))
    more = [f"... {len(lines) - 20} lines more"] if len(lines) > 20 else []
    return "\n".join(lines[:20] + more) or f"{path.name} differs in line ends"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check

    nvrtc = Nvrtc()
    stale = 0
    for source in sorted(KERNELS.glob("*.cu")):
        ptx, path = nvrtc.compile(source), source.with_suffix(".ptx")
        if not check:
            path.write_text(ptx, newline="\n")
            print(f"wrote {path.name}")
        elif difference_found := difference(path, ptx):
            stale += 1
            print(difference_found)
        else:
            print(f"{path.name} is what {source.name} compiles to")
    for path in sorted(KERNELS.glob("*.ptx")):
        if not path.with_suffix(".cu").exists():
            stale += 1
            print(f"{path.name} has no source")
    if stale:
        sys.exit(f"{stale} files are not up to date; run kernels/build.py")


if __name__ == "__main__":
    main()
