"""Start of slurmray.pyz: unpacks it into the user's cache, as an archive cannot run compiled modules.

Python 3.6 and later can read this file: one that is too old hands over to another, or prints what is needed.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

# Followed by a suffix for each Python and machine, e.g. .cpython-311-x86_64-linux-gnu.so
COMPILED = "pydantic_core/_pydantic_core"
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
# Exits with 0 if its Python has one of the suffixes in its arguments.
FITS = "import sys, sysconfig; sys.exit(sysconfig.get_config_var('EXT_SUFFIX') not in sys.argv)"


def main():
    """Run slurmray and return its exit code."""
    archive = os.path.dirname(os.path.abspath(__file__))
    with zipfile.ZipFile(archive) as packed:
        entries = packed.infolist()
        names = [entry.filename for entry in entries]
        suffixes = [name[len(COMPILED) :] for name in names if name.startswith(COMPILED + ".cpython-")]
        if SUFFIX not in suffixes:
            return run_elsewhere(archive, suffixes)
        others = [COMPILED + suffix for suffix in suffixes if suffix != SUFFIX]
        try:
            folder = unpack(packed, [entry for entry in entries if entry.filename not in others])
        except OSError as error:
            where = "%s: %s" % (error.filename, error.strerror)
            return fail("cannot unpack: %s. Set XDG_CACHE_HOME to a folder that you can write to" % where)
    if os.stat(folder).st_uid != os.geteuid():
        return fail("%s is another user's. Remove it, or set XDG_CACHE_HOME to a folder of yours" % folder)
    sys.path[0] = folder
    from slurmray.cli import main as run

    return run()


def unpack(packed, entries):
    """Extract the entries, unless an earlier start did so, and return the folder. OSError."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    parent = os.path.join(cache, "slurmray", "pyz")
    contents = repr([(entry.filename, entry.CRC) for entry in entries])
    folder = os.path.join(parent, hashlib.sha256(contents.encode()).hexdigest()[:16])
    if not os.path.isdir(folder):
        os.makedirs(parent, exist_ok=True)
        scratch = tempfile.mkdtemp(dir=parent)
        try:
            packed.extractall(scratch, entries)
            os.rename(scratch, folder)
        except OSError:
            if not os.path.isdir(folder):  # another start was quicker
                raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return folder


def run_elsewhere(archive, suffixes):
    """Run the archive with another Python on PATH; without one, print what it needs and return 2."""
    minors = sorted({int(suffix.split("-")[1][1:]) for suffix in suffixes})
    for name in ["python3"] + ["python3.%d" % minor for minor in reversed(minors)]:
        with open(os.devnull, "w") as null:
            try:
                code = subprocess.call([name, "-c", FITS] + suffixes, stdout=null, stderr=null)
            except OSError:
                continue
        if code == 0:
            os.execvp(name, [name, archive] + sys.argv[1:])
    machines = " and ".join(sorted({suffix.split("-")[2] for suffix in suffixes}))
    wanted = "needs CPython 3.%d to 3.%d on Linux, %s" % (minors[0], minors[-1], machines)
    given = "this is Python %s on %s (%s)" % (sys.version.split()[0], os.uname()[4], sys.executable)
    fix = "Load another, e.g. module load python, or install slurmray with uv, which downloads one"
    return fail("%s; %s. %s" % (wanted, given, fix))


def fail(message):
    """Print a message and return the exit code."""
    sys.stderr.write("slurmray: %s\n" % message)
    return 2


if __name__ == "__main__":
    sys.exit(main())
