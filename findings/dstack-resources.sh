#!/usr/bin/env bash
# dstack 0.22.5: a GPU by name means "one or more", a GPU by number means exactly that many.
#
# Guess: `gpu: H100` is one H100, as on other launchers; memory and disk without a range are minima.
# Seen:  `gpu: H100` and `gpu: 24GB` are 1 or more GPUs, so a node of eight fits and is billed; `gpu: 8` and `gpu: H100:8`
#        are exactly 8. `memory: 64GB` is exactly 64, not 64 or more, and GB are GiB: 64000MB become 62.5GB. `64GiB` and
#        `64G`, which Slurm and Kubernetes take, are refused. max_duration takes 90s and 5d, neither 1h30m nor 1.5h.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
make_venv dstack==0.22.5

seen=$(
	python - <<-'END' 2>/dev/null
		from dstack._internal.core.errors import ConfigurationError
		from dstack._internal.core.models.configurations import parse_run_configuration

		def parse(**fields):
		    return parse_run_configuration({"type": "task", "commands": ["true"], **fields})

		for gpu in ("H100", "24GB", 8, "H100:8"):
		    count = parse(resources={"gpu": gpu}).resources.gpu.count
		    print(gpu, count.min, count.max)
		for memory in ("64GB", "64000MB", "64GiB", "64G"):
		    try:
		        size = parse(resources={"memory": memory}).resources.memory
		        print(memory, size.min, size.max)
		    except ConfigurationError:
		        print(memory, "refused")
		for duration in ("90s", "5d", "1h30m", "1.5h"):
		    try:
		        print(duration, parse(max_duration=duration).max_duration)
		    except ConfigurationError:
		        print(duration, "refused")
	END
)
expect 'resources and durations' "$(
	cat <<-'END'
		H100 1 None
		24GB 1 None
		8 8 8
		H100:8 8 8
		64GB 64GB 64GB
		64000MB 62.5GB 62.5GB
		64GiB refused
		64G refused
		90s 90
		5d 432000
		1h30m refused
		1.5h refused
	END
)" "$seen"
