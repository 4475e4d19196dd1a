#!/usr/bin/env bash
# ray 2.60.0: the driver's output hides lines of workers that differ in their numbers.
#
# Guess: only equal lines of several workers become one, so nine lines with nine different losses are all shown.
# Seen:  two of nine. For deduplication numbers count as equal, so "rank 1 step 0 loss 2.500" stands for those of
#        all ranks and steps within five seconds, and one more line ends with "[repeated 8x across cluster]".
#        The losses of eight lines are nowhere in a job's log. RAY_DEDUP_LOGS=0 shows all nine.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
make_venv ray==2.60.0

# shown VARIABLE=VALUE: how many lines of the workers the driver prints.
shown() {
	env "$1" python - <<-'END' 2>/dev/null | grep --count 'rank .* loss'
		import time
		import ray

		@ray.remote
		class Worker:
		    def train(self, rank, step):
		        print(f"rank {rank} step {step} loss {3.5 - rank - step / 10:.3f}")

		ray.init(num_cpus=3, include_dashboard=False)
		workers = [Worker.remote() for _ in range(3)]
		for step in range(3):
		    ray.get([worker.train.remote(rank, step) for rank, worker in enumerate(workers)])
		time.sleep(10)  # lines are held back for five seconds
	END
}

expect 'lines by default' 2 "$(shown RAY_DEDUP_LOGS=1)"
expect 'lines with RAY_DEDUP_LOGS=0' 9 "$(shown RAY_DEDUP_LOGS=0)"
