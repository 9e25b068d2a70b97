"""scripts/tidy.sh: which files are given to clang-tidy, and together with which others.

Most of the time goes into standard headers. So clang-tidy gets batches, files that include several of ours. Two files that
define a name alike, each in a namespace without name, are in different batches. Kernels, which Highway includes several
times, are given alone, and so are the files of a batch that does not compile.
"""

import concurrent.futures
import os
import re
import subprocess
import sys

LARGEST = 12  # files of a batch
FOLDER = "build/tidy"
KERNEL = "hwy/foreach_target.h"


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def changed_files(files):
    names = output("git", "diff", "--name-only", "HEAD").split()
    names += output("git", "ls-files", "--others", "--exclude-standard").split()
    headers = ['/%s"' % os.path.basename(name) for name in names if name.endswith(".h")]
    return [file for file in files if file in names or any(header in read(file) for header in headers)]


def names_defined(text):
    """Names at the beginnings of lines that are defined in namespaces without name, or in any."""
    definition = re.compile(r"^(?!using namespace|return|#|//|\s|[{}])[^=;(]*?\b(\w+)(?: = |\(|\{| \{|;|\[| final| :)", re.M)
    parts = re.split(r"^namespace \{\n(.*?)^\}  // namespace\n", text, flags=re.M | re.S)
    return [{match.group(1) for part in some for match in definition.finditer(part)} for some in (parts[1::2], parts)]


def batches_of(files):
    """Lists of files, none of which hides a name of another."""
    batches = []
    for file in files:
        text = read(file)
        if KERNEL in text or not text.count("namespace linnet"):
            batches.append(([file], None, None))
            continue
        own, every = names_defined(text)
        for batch, own_of_batch, every_of_batch in batches:
            if own_of_batch is not None and len(batch) < LARGEST and not (own & every_of_batch or every & own_of_batch):
                batch.append(file)
                own_of_batch |= own
                every_of_batch |= every
                break
        else:
            batches.append(([file], own, every))
    return [batch for batch, _, _ in batches]


def flags():
    cairo = subprocess.run(["pkg-config", "--cflags-only-I", "cairo"], stdout=subprocess.PIPE, text=True)
    mpi = subprocess.run(["pkg-config", "--cflags-only-I", "ompi-c"], stdout=subprocess.PIPE, text=True)
    found = [f"-DLINNET_{name.upper()}" for name in ("sndfile", "sentencepiece")
             if subprocess.run(["pkg-config", "--exists", name]).returncode == 0]
    return found + ['-DLINNET_CONFIGS="configs"', "-I.", "-Iinclude", "-Isrc", "-Iapps/linnet", "-DFMT_SHARED", "-DHWY_SHARED_DEFINE", "-DHWY_COMPILE_ONLY_STATIC",
            "-Wall", "-Wextra"] + (["-DLINNET_CAIRO"] + cairo.stdout.split() if cairo.returncode == 0 else []) + \
        (["-DLINNET_MPI"] + mpi.stdout.split() if mpi.returncode == 0 else [])


def findings(tidy, options, files):
    """What clang-tidy says about these files, or nothing."""
    main = files[0]
    if len(files) > 1:
        main = "%s/%s.cc" % (FOLDER, files[0].replace("/", "_"))
        with open(main, "w", encoding="utf-8") as file:
            file.writelines('#include "%s"\n' % name for name in files)
    standard = "-std=c99" if main.endswith(".c") else "-std=c++20"
    ended = subprocess.run([tidy, "--quiet", "--config-file=.clang-tidy", main, "--", standard] + options, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if len(files) > 1 and "[clang-diagnostic-error" in ended.stdout:
        return "".join(findings(tidy, options, [name]) for name in files)
    # Status 1 is that of findings. On standard error it says how many warnings of other headers it has left out, and why it
    # has looked at nothing.
    if ended.returncode not in (0, 1) or (ended.returncode and not ended.stdout):
        return "%stidy: expected %s to look at %s, got status %d: %s\n" % (
            ended.stdout, tidy, " ".join(files), ended.returncode, ended.stderr.strip())
    return ended.stdout if ended.returncode else ""


def main(tidy, *arguments):
    if arguments not in ((), ("--changed",)):
        sys.exit("tidy: expected --changed or nothing, got " + " ".join(arguments))
    files = output("git", "ls-files", "--cached", "--others", "--exclude-standard", "src/*.cc", "apps/*.cc", "examples/*.cc", "examples/*.c").split()
    if arguments:
        files = changed_files(files)
    os.makedirs(FOLDER, exist_ok=True)
    options = flags()
    batches = sorted(batches_of(files), key=len, reverse=True)
    seen = set()  # findings in headers are in several batches
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
        for found in threads.map(lambda batch: findings(tidy, options, batch), batches):
            for finding in re.split(r"^(?=\S+:\d+:\d+: (?:error|warning))", found, flags=re.M):
                if finding not in seen:
                    print(finding, end="", flush=True)
                    seen.add(finding)
    if seen - {""}:
        sys.exit("tidy: expected no findings in %d files" % len(files))
    print("tidy: nothing found in %d files" % len(files))


main(*sys.argv[1:])
