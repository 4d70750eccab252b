"""What a guest boots: Debian's kernel, taken out of its package, and a small initramfs.

Both are kept in ${XDG_CACHE_HOME:-~/.cache}/beeline/lab-VERSION/, shared by all clones of the
repository, and made again when what they are made of changes. Nothing is installed.
"""
import contextlib
import fcntl
import glob
import hashlib
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from lab.errors import LabError

HERE = pathlib.Path(__file__).resolve().parent
FORMAT = 1  # part of the folder's name: a change here that the inputs below do not show
# An unpacked package has no modules.dep: what these need is read out of the modules themselves.
MODULES = ("virtio_pci", "virtio_net", "virtio_console", "virtio_rng", "9p", "9pnet_virtio", "crc32_generic",
           "crc32_pclmul", "rdma_rxe", "ib_uverbs", "rdma_cm", "rdma_ucm")
PROGRAMS = ("ibv_devinfo", "ibv_devices", "ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong",
            "ib_write_bw", "ib_write_lat", "ib_read_bw", "ib_read_lat", "ib_send_bw", "ib_send_lat", "ib_atomic_bw",
            "ib_atomic_lat", "rping", "ucmatose", "udaddy", "rdma")
# Opened by name at run time, so that ldd does not show them: pthread_exit needs the last.
OPENED_BY_NAME = ("libibverbs.so.1", "librdmacm.so.1", "libgcc_s.so.1")
LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu")


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(base, "beeline")


@contextlib.contextmanager
def locked(path):
    """Holds a lock that other clones of the repository respect; the kernel frees it when we die."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def shared_libraries(file):
    """Paths of all shared libraries that an ELF file needs, directly or not; [] for a script."""
    environment = {**os.environ, "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
    done = subprocess.run(["ldd", str(file)], capture_output=True, text=True, env=environment, check=False)
    if missing := re.findall(r"(\S+) => not found", done.stdout):
        raise LabError(f"{file} needs {', '.join(missing)}, which this machine lacks")
    return re.findall(r"(?:=> )?(/\S+) \(0x", done.stdout)


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise LabError(f"{' '.join(map(str, command))} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def kernel_package():
    """The name of Debian's current kernel package."""
    names = re.findall(r"Depends: (linux-image-\S+)", run("apt-cache", "depends", "linux-image-amd64"))
    if not names:
        raise LabError("apt knows no linux-image-amd64: run apt-get update, or use a Debian machine")
    return names[0]


class Modules:
    """The kernel modules of an unpacked package."""

    def __init__(self, folder):
        self.files = {path.stem.replace("-", "_"): path for path in folder.rglob("*.ko")}

    def needed_by(self, name):
        data = self.files[name].read_bytes()
        lists = re.findall(rb"\0depends=([^\0]+)\0", data) + re.findall(rb"\0softdep=pre: ([^\0]+)\0", data)
        return [other.replace("-", "_") for found in lists for other in re.split(r"[, ]+", found.decode())]

    def in_order(self, wanted):
        """The wanted modules and what they need, each behind what it needs; built-in ones are left out."""
        order = []

        def visit(name):
            if name in self.files and name not in order:
                for other in self.needed_by(name):
                    visit(other)
                order.append(name)

        for name in wanted:
            visit(name)
        if "rdma_rxe" not in order:
            raise LabError("this kernel package has no rdma_rxe")
        return order


class Image:
    """Makes the kernel and the initramfs where they are missing or old."""

    def __init__(self, report=print):
        self.report = report
        self.folder = cache_folder() / f"lab-{FORMAT}"
        self.kernel = self.folder / "vmlinux"
        self.initramfs = self.folder / "initramfs.cpio"

    def prepare(self):
        if missing := [name for name in ("qemu-system-x86_64", "busybox", "cpio") if not shutil.which(name)]:
            raise LabError(f"{', '.join(missing)} not installed: scripts/setup --for-tests does that")
        with locked(self.folder.with_name(self.folder.name + ".lock")):
            self.folder.mkdir(exist_ok=True)
            # A kernel that is there is good enough: a run of the tests does not depend on the mirror.
            if not (self.folder / "kernel.complete").exists():
                self._unpack_kernel()
            inputs = self._inputs()
            stamp = self.folder / "initramfs.inputs"
            if not stamp.exists() or stamp.read_text() != inputs or not self.initramfs.exists():
                self._build_initramfs()
                stamp.write_text(inputs)
        return self

    def refresh(self):
        """Takes the kernel again that the package lists name today."""
        with locked(self.folder.with_name(self.folder.name + ".lock")):
            for stamp in ("kernel.complete", "initramfs.inputs"):
                (self.folder / stamp).unlink(missing_ok=True)
        return self.prepare()

    def _unpack_kernel(self):
        package = kernel_package()
        self.report(f"lab: fetching {package} (70 MB) into {self.folder}")
        with tempfile.TemporaryDirectory(dir=self.folder) as work:
            run("apt-get", "-q", "download", package, cwd=work)
            run("dpkg", "-x", glob.glob(work + "/*.deb")[0], work + "/unpacked")
            image = glob.glob(work + "/unpacked/boot/vmlinuz-*")[0]
            data = pathlib.Path(image).read_bytes()
            # qemu boots an ELF vmlinux directly (PVH); unpacking it in the guest would take seconds each time.
            start = data.find(b"\xfd7zXZ\0")
            if start < 0:
                raise LabError(f"the kernel in {package} is not packed with xz")
            unpacked = lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(data[start:])
            whole = pathlib.Path(work, "vmlinux")
            whole.write_bytes(unpacked)
            whole.replace(self.kernel)  # not overwritten: a guest of another clone may be booting from it
            shutil.rmtree(self.folder / "modules", ignore_errors=True)
            shutil.move(glob.glob(work + "/unpacked/lib/modules/*")[0], self.folder / "modules")
        (self.folder / "kernel.complete").write_text(package)

    def _inputs(self):
        """A digest of everything that goes into the initramfs, by content or by date."""
        seen = hashlib.sha256()
        for name in ("init", "lab-gid", "image.py"):
            seen.update((HERE / name).read_bytes())
        seen.update((self.folder / "kernel.complete").read_bytes())
        for name in ("busybox", *PROGRAMS):
            path = shutil.which(name)
            seen.update(f"{name} {path} {os.stat(path).st_mtime_ns if path else ''}\n".encode())
        for path in (self._library(name) for name in OPENED_BY_NAME):
            seen.update(f"{path} {os.stat(path).st_mtime_ns}\n".encode())
        return seen.hexdigest()

    @staticmethod
    def _library(name):
        for folder in LIBRARY_FOLDERS:
            if os.path.exists(f"{folder}/{name}"):
                return f"{folder}/{name}"
        raise LabError(f"{name} is not installed: scripts/setup --for-tests does that")

    def _build_initramfs(self):
        self.report(f"lab: building {self.initramfs}")
        with tempfile.TemporaryDirectory(dir=self.folder) as work:
            root = pathlib.Path(work, "root")
            for name in ("bin", "sbin", "dev", "proc", "sys", "tmp", "run", "etc", "root", "usr/bin", "usr/sbin",
                         "lib/modules"):
                (root / name).mkdir(parents=True)
            self._put_busybox(root)
            self._put_modules(root)
            self._put_programs(root)
            (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
            (root / "etc/group").write_text("root:x:0:\n")
            (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
            for name, place in (("init", "init"), ("lab-gid", "bin/lab-gid")):
                shutil.copy(HERE / name, root / place)
                (root / place).chmod(0o755)
            names = run("find", ".", cwd=root)
            archive = subprocess.run(["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"], cwd=root,
                                     input="\n".join(sorted(names.split())).encode() + b"\n", capture_output=True,
                                     check=False)
            if archive.returncode:
                raise LabError(f"cpio failed: {archive.stderr.decode().strip()}")
            # Replaced, not overwritten: a guest of another clone may be booting from it.
            whole = pathlib.Path(work, "initramfs.cpio")
            whole.write_bytes(archive.stdout)
            whole.replace(self.initramfs)

    @staticmethod
    def _put_busybox(root):
        shutil.copy(shutil.which("busybox"), root / "bin/busybox")
        for applet in run("busybox", "--list").split():
            if applet not in ("busybox", *PROGRAMS):
                (root / "bin" / applet).symlink_to("busybox")

    def _put_modules(self, root):
        modules = Modules(self.folder / "modules")
        order = modules.in_order(MODULES)
        for name in order:
            shutil.copy(modules.files[name], root / "lib/modules" / f"{name}.ko")
        (root / "lib/modules/order").write_text("\n".join(order) + "\n")

    def _put_programs(self, root):
        found = {name: shutil.which(name) for name in PROGRAMS}
        if missing := [name for name, path in found.items() if path is None]:
            raise LabError(f"{', '.join(missing)} not installed: scripts/setup --for-tests does that")
        provider = glob.glob("/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav*.so")
        if not provider:
            raise LabError("libibverbs has no rxe provider here: scripts/setup --for-tests installs ibverbs-providers")
        files = {*found.values(), provider[0], *(self._library(name) for name in OPENED_BY_NAME)}
        for file in sorted(files):
            files.update(shared_libraries(file))
        files.add("/etc/libibverbs.d/rxe.driver")
        for file in files:
            target = pathlib.Path(f"{root}{file}")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(os.path.realpath(file), target)
