#!/usr/bin/env python3
"""Trains on several machines with slow lines between them, imitated on this one (machines.py).

Without --table it tests one of the properties of TESTS, and ends with status 77 where the system cannot
imitate networks. With --table it measures tokens per second, for docs/clusters.md:
    tests/comm/network/training.py --linnet build/release/apps/linnet/linnet --relay build/release/tests/comm/network/network_relay --table
"""

import argparse
import os
import signal
import sys
import tempfile
import time

import machines
import table
from runs import ENVIRONMENT, SMALL, lines_of, metrics, model, run, seconds, succeed

DELAY = 20  # milliseconds one way
MEGABITS = 100
SILENCE = 5  # seconds; Peers::silence
UPDATES = 6
STEPS = "training.steps=%d" % UPDATES
SEQUENCES = ("training.sequence_ranks=2",)


def expect(condition, text):
    if not condition:
        raise AssertionError(text)


def expect_same_bits(folder, reference):
    expect(metrics(folder) == metrics(reference), "expected the metrics of %s, got others" % reference)
    expect(model(folder) == model(reference), "expected the model of %s, got another" % reference)


def expect_time(folder, least):
    expect(seconds(folder) >= least, "expected updates of at least %.2f s together, got %.2f s" % (least, seconds(folder)))


class Training:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder

    def network(self, count, **properties):
        return machines.Network(count, os.path.join(self.folder, "network"), self.options.relay, **properties)

    def train(self, name, launcher=(), settings=()):
        folder = os.path.join(self.folder, name)
        succeed([*launcher, self.options.linnet, "train", *SMALL, STEPS, *settings, "--out", folder])
        return folder

    def over(self, network, name, settings=()):
        return self.train(name, network.mpirun(self.options.mpirun), settings)

    def passes(self):
        """Ranks on two and four machines end with the bits of one process, in no less time than the lines take."""
        reference = self.train("one")
        for count in (2, 4):
            with self.network(count, megabits=MEGABITS) as network:
                folder = self.over(network, "machines%d" % count)
                expect_same_bits(folder, reference)
                sent = 8 * lines_of(folder)[0]["parameters"] * (count - 1) / count
                expect_time(folder, UPDATES * sent * 8 / (MEGABITS * 1e6))

    def sequences(self):
        """Sequences divided between two machines give the bits of two ranks on one."""
        reference = self.train("local", (self.options.mpirun, "-n", "2"), SEQUENCES)
        with self.network(2, megabits=MEGABITS) as network:
            expect_same_bits(self.over(network, "machines", SEQUENCES), reference)

    def delay(self):
        """The same where messages take 20 ms. Every update has at least two of them one after another."""
        with self.network(2, delay=DELAY) as network:
            for name, settings in (("passes", ()), ("sequences", SEQUENCES)):
                reference = self.train("local-" + name, (self.options.mpirun, "-n", "2"), settings)
                folder = self.over(network, name, settings)
                expect_same_bits(folder, reference)
                expect_time(folder, UPDATES * 2 * DELAY / 1000)

    def slowness(self):
        """A rank whose gradient is on its way for longer than silence means death is not taken for dead."""
        settings = ("training.steps=1", "model.layers=4", "model.width=256", "model.feed_forward=1024", "training.batch=1", "training.accumulate=2")
        reference = self.train("one", (), settings)
        with self.network(2, megabits=8) as network:
            folder = self.over(network, "machines", settings)
            expect_same_bits(folder, reference)
            expect_time(folder, 2 * SILENCE)

    def death(self):
        """A rank that is killed on another machine ends the run, with one sentence; its checkpoint resumes."""
        settings = ("training.steps=60", "training.checkpoint_every=20")
        reference = self.train("one", (), settings)
        folder = os.path.join(self.folder, "killed")
        with self.network(3, megabits=MEGABITS) as network:
            # On a busy machine the survivors may need more than the second that mpirun leaves them otherwise.
            launcher = network.mpirun(self.options.mpirun, "--mca", "odls_base_sigkill_timeout", "2")
            command = [*launcher, self.options.linnet, "train", *SMALL, *settings, "--out", folder]
            killed = [0.0]

            def kill():
                if not os.path.exists(folder + "/checkpoints/20"):
                    return False
                killed[0] = time.monotonic()
                for process in network.ranks(1):
                    os.kill(process, signal.SIGKILL)
                return True

            text, status = run(command, while_waiting=kill)
            took = time.monotonic() - killed[0]
            expect(status not in (0, 124), "expected the run to fail, got status %d:\n%s" % (status, text))
            expect(took < 30, "expected the run to end within 30 s, got %.1f s:\n%s" % (took, text))
            expect(text.count("linnet: ") == 1 and text.count("linnet: [ranks] rank 1 of 3 ") == 1 and
                   " has died: the last good checkpoint is " in text, "expected one sentence about the death, got:\n" + text)
            succeed([*network.mpirun(self.options.mpirun), self.options.linnet, "train", "--resume", folder, "--threads", "1"])
            expect(model(folder) == model(reference), "expected the model of a run that nobody has killed, got another")


TESTS = {"passes": Training.passes, "sequences": Training.sequences, "delay": Training.delay, "slowness": Training.slowness,
         "death": Training.death}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--linnet", required=True, help="the program")
    parser.add_argument("--relay", required=True, help="the program of relay.cc")
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--table", action="store_true", help="measure instead of testing")
    parser.add_argument("--rounds", type=int, default=2, help="of the table")
    parser.add_argument("tests", nargs="*", choices=[[], *TESTS], help="; ".join(TESTS))
    options = parser.parse_args()
    options.linnet, options.relay = os.path.abspath(options.linnet), os.path.abspath(options.relay)
    machines.enter()
    os.environ.update(ENVIRONMENT)
    with tempfile.TemporaryDirectory(prefix="linnet-network-") as folder:
        if options.table:
            table.measure(options, folder)
        for name in options.tests:
            path = os.path.join(folder, name)
            os.mkdir(path)
            begin = time.monotonic()
            TESTS[name](Training(options, path))
            print("%s: passed in %.1f s" % (name, time.monotonic() - begin), flush=True)


if __name__ == "__main__":
    sys.exit(main())
