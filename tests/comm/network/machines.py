"""Machines on a network, imitated by namespaces of Linux.

A machine is a process with network, host name and processes of its own; files are shared. Its line goes to a
switch, a bridge. Everything lives in namespaces that end with this program, however it ends: devices, queues
and processes that it leaves behind go with them.
"""

import glob
import os
import shutil
import subprocess
import sys
import time

SKIPPED = 77
SUBNET = "10.77.0.0/24"
INSIDE = "LINNET_TEST_INSIDE_NAMESPACES"


def missing():
    """What this machine lacks, in words; nothing where it lacks nothing."""
    if os.geteuid() != 0:
        return "root"
    for tool in ("unshare", "nsenter", "ip", "tc"):
        if not shutil.which(tool):
            return "the program " + tool
    if not os.path.exists("/dev/net/tun"):
        return "/dev/net/tun"
    trial = """ip link add trial0 type veth peer name trial1 && ip link add trial2 type bridge &&
               tc qdisc add dev trial0 root tbf rate 100mbit burst 64kb latency 50ms &&
               ip tuntap add dev trial3 mode tap"""
    result = subprocess.run(["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", trial],
                            capture_output=True, text=True)
    return "" if result.returncode == 0 else "namespaces, veth, bridge, tbf or TAP devices (%s)" % result.stderr.strip()


def enter():
    """Goes on in namespaces of its own. Ends the program with SKIPPED where the system does not allow that."""
    if INSIDE in os.environ:
        call("ip", "link", "set", "lo", "up")
        return
    lacking = missing()
    if lacking:
        print("skipped: expected a system on which networks can be imitated, got one without " + lacking)
        sys.exit(SKIPPED)
    os.environ[INSIDE] = "1"
    command = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    os.execvp("unshare", command + [sys.executable] + sys.argv)


def call(*command):
    subprocess.run(command, check=True)


def child_of(process):
    """The first child, once there is one."""
    for _ in range(1000):
        for path in glob.glob("/proc/[0-9]*/stat"):
            try:
                with open(path, encoding="utf-8") as file:
                    fields = file.read().rpartition(")")
            except OSError:
                continue
            if int(fields[2].split()[1]) == process:
                return int(path.split("/")[2])
        time.sleep(0.01)
    raise RuntimeError("machine: expected a process to start, got none")


class Network:
    """`count` machines. `megabits`: per second, of each line in each direction. `delay`: milliseconds one way of
    each line but the first, so that machine 0 is so far away from all others."""

    def __init__(self, count, folder, relay, megabits=None, delay=None):
        self.folder = os.path.abspath(folder)
        os.makedirs(self.folder, exist_ok=True)
        self.processes, self.machines = [], []
        self.addresses = ["10.77.0.%d" % (machine + 1) for machine in range(count)]
        call("ip", "link", "add", "switch", "type", "bridge")
        call("ip", "link", "set", "switch", "up")
        for machine in range(count):
            self.start(machine)
            self.connect(machine, relay, megabits, delay if machine else None)
        self.write_agent()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()
        # A device that is deleted now does not wait for the end of its namespace.
        for device in ["switch"] + ["port%d" % machine for machine in range(len(self.machines))]:
            subprocess.run(["ip", "link", "delete", device], stderr=subprocess.DEVNULL)

    def start(self, machine):
        process = subprocess.Popen(["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                                    "sh", "-c", "hostname machine%d && exec sleep infinity" % machine])
        self.processes.append(process)
        self.machines.append(child_of(process.pid))
        with open("%s/%s" % (self.folder, self.addresses[machine]), "w", encoding="utf-8") as file:
            file.write("%d\n" % self.machines[machine])

    def connect(self, machine, relay, megabits, delay):
        port, process = "port%d" % machine, str(self.machines[machine])
        if delay is None:
            call("ip", "link", "add", port, "type", "veth", "peer", "name", "line", "netns", process)
        else:
            line = subprocess.Popen([relay, str(delay), "self", port, process, "line"], stdout=subprocess.PIPE, text=True)
            self.processes.append(line)
            if line.stdout.readline() != "ready\n":
                raise RuntimeError("machine: expected a relay, got none")
        call("ip", "link", "set", port, "master", "switch", "up")
        for command in ("ip link set lo up", "ip link set line up", "ip address add %s/24 dev line" % self.addresses[machine]):
            call(*self.inside(machine), *command.split())
        if megabits is not None:
            queue = ("root", "tbf", "rate", "%gmbit" % megabits, "burst", "64kb", "latency", "50ms")
            call("tc", "qdisc", "add", "dev", port, *queue)
            call(*self.inside(machine), "tc", "qdisc", "add", "dev", "line", *queue)

    def inside(self, machine):
        """What a command begins with that runs on a machine, with the processes of this program."""
        return ["nsenter", "--target", str(self.machines[machine]), "--net", "--uts", "--"]

    def write_agent(self):
        """Stands for ssh: `agent HOST COMMAND…`."""
        self.agent = self.folder + "/agent"
        with open(self.agent, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nmachine=$(cat '%s'/\"$1\")\nshift\n" % self.folder)
            file.write("exec nsenter --target $machine --net --uts --mount --pid --wd=\"$PWD\" -- sh -c \"$*\"\n")
        os.chmod(self.agent, 0o755)

    def mpirun(self, mpirun, *options):
        """What a command begins with that runs on every machine: one rank each."""
        settings = {"plm_rsh_agent": self.agent, "btl": "tcp,self", "btl_tcp_if_include": SUBNET, "oob_tcp_if_include": SUBNET,
                    "orte_tmpdir_base": self.folder}  # machines of other tests have the same names and process ids
        mca = [word for name, value in settings.items() for word in ("--mca", name, value)]
        hosts = ",".join(address + ":1" for address in self.addresses)
        return self.inside(0) + [mpirun, "--bind-to", "none", *mca, "--host", hosts, *options]

    def ranks(self, machine):
        """The processes of the program on a machine other than the first."""
        found = []
        for path in glob.glob("/proc/[0-9]*"):
            try:
                same = os.readlink(path + "/ns/pid") == os.readlink("/proc/%d/ns/pid" % self.machines[machine])
                with open(path + "/comm", encoding="utf-8") as file:
                    if same and file.read() == "linnet\n":
                        found.append(int(path.split("/")[2]))
            except OSError:
                continue
        return found
