"""Make a translation memory of GNOME's catalogs, and whole catalogs that are not in it.

    python tests/benchmarks/gnome_memory.py OUT [LANGUAGE]

Needs Debian's apt and gettext, and translate-toolkit for po2tmx. Writes OUT/memory.tmx of the catalogs in `MEMORY`. For
each catalog in `HELD_OUT`, it writes NAME.new.po without translations, and NAME.po with them.
"""

import shutil
import subprocess
import sys
from pathlib import Path

# Debian's packages with the translations of GNOME's programs.
MEMORY = (
    "anjuta-common baobab brasero-common cheese-common devhelp-common dia-common eog epiphany-browser-data "
    "evolution-common evolution-data-server-common gedit-common gimp-data gnome-boxes gnome-builder gnome-calendar "
    "gnome-characters gnome-contacts gnome-control-center-data gnome-desktop3-data gnome-disk-utility "
    "gnome-initial-setup gnome-logs gnome-maps gnome-music gnome-photos gnome-session-common "
    "gnome-settings-daemon-common gnome-shell-common gnome-software-common gnome-sushi gnome-terminal-data "
    "gnome-text-editor gnome-tweaks gnome-weather gthumb-data gvfs-common libglib2.0-data libgoa-1.0-common "
    "libgtk-3-common libgtk-4-common network-manager network-manager-gnome orca planner-data rhythmbox-data seahorse "
    "shotwell-common simple-scan totem-common"
)
HELD_OUT = "evince-common file-roller gnome-calculator gnome-clocks gnome-system-monitor nautilus-data"


def run(*command: str | Path, directory: Path | None = None) -> None:
    subprocess.run(command, check=True, cwd=directory)


def catalog(package: str, language: str, directory: Path) -> Path:
    """Download a package, and write the largest of its catalogs."""
    if not list(directory.glob(f"{package}_*.deb")):
        run("apt-get", "download", "-q", package, directory=directory)
    [archive] = directory.glob(f"{package}_*.deb")
    files = directory / package
    run("dpkg-deb", "--extract", archive, files)
    compiled = max(files.glob(f"usr/share/**/{language}/LC_MESSAGES/*.mo"), key=lambda path: path.stat().st_size)
    path = directory / f"{package}.po"
    run("msgunfmt", "--no-wrap", "-o", path, compiled)
    shutil.rmtree(files)
    return path


def main(out: Path, language: str = "de") -> None:
    # 1. Join the catalogs of the memory.
    packages = out / "packages"
    joined = out / "joined"
    joined.mkdir(parents=True, exist_ok=True)
    packages.mkdir(exist_ok=True)
    for package in MEMORY.split():
        shutil.copy(catalog(package, language, packages), joined)
    run("po2tmx", "-l", language, joined, out / "memory.tmx")
    # 2. Empty the catalogs that are held out.
    for package in HELD_OUT.split():
        reference = shutil.copy(catalog(package, language, packages), out)
        emptied = out / f"{package}.new.po"
        run("msgfilter", "--keep-header", "--no-wrap", "-o", emptied, "-i", reference, "sh", "-c", "cat > /dev/null")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), *sys.argv[2:])
