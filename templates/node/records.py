"""What this node was told, and what it says: the two streams of the step."""

import sys


class Records:
    """The records that have come, and messages to the batch script. docs/architecture.md lists both."""

    def __init__(self, node):
        self.node = node  # its name in Slurm
        self.conf = {}  # key -> list of values

    def one(self, key, default=""):
        """The last value of a key."""
        return self.conf.get(key, [default])[-1]

    def is_head(self):
        """Whether it is the head node."""
        return self.one("rank") == "0"

    def number(self):
        """The rank of this node: 0 is the head, then the others in the order of Slurm."""
        return self.conf["nodes"].index(self.node)

    def attempt(self):
        """How many times the job was requeued."""
        return self.one("job").rpartition("-")[2]

    def say(self, verb, *text):
        """One message to the batch script."""
        # In one piece, as the task of the node writes to the same pipe.
        sys.stdout.write(" ".join(map(str, ["slurmray", self.node, verb, *text])) + "\n")
        sys.stdout.flush()

    def find(self, kind, *row):
        """A finding for the table in the log: check, found, wanted, remedy. kind `warn`: only that."""
        level = self.one("preflight", "fail")
        if level != "none":
            kind = "warn" if level == "warn" else kind
            fields = (str(field).replace("|", "/").replace("\n", " ") for field in row)
            self.say("finding", "|".join([kind, *fields]))

    def find_fault(self, *row):
        """A finding that ends the job, unless the job spec says otherwise."""
        self.find("preflight", *row)

    def is_strict(self):
        """Whether such a finding ends the job."""
        return self.one("preflight", "fail") == "fail"
