"""KVM where it works, emulation elsewhere.

/dev/kvm proves little: nested or cut-down virtual machines offer it and cannot run a guest.
So a guest is tried once per boot of the host.
"""
import os
import pathlib
import subprocess

EMULATION = "tcg,thread=multi"


def choose(image):
    """What to give to qemu's -accel. BEELINE_LAB_ACCEL=kvm or tcg decides instead."""
    if wanted := os.environ.get("BEELINE_LAB_ACCEL"):
        return EMULATION if wanted == "tcg" else wanted
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return EMULATION
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    known = image.folder / "kvm"
    if not known.exists() or not known.read_text().startswith(boot):
        known.write_text(f"{boot} {'works' if kvm_works(image) else 'fails'}\n")
    return "kvm" if known.read_text().endswith("works\n") else EMULATION


def kvm_works(image):
    """Boots the kernel without anything to start; with KVM it gives up within a second, and says so."""
    command = ["timeout", "-s", "KILL", "15", "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none",
               "-no-reboot", "-machine", "q35", "-accel", "kvm", "-cpu", "max", "-m", "256", "-kernel",
               str(image.kernel), "-append", "console=ttyS0 panic=-1", "-serial", "stdio"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return b"Unable to mount root fs" in done.stdout
