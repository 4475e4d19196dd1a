#!/usr/bin/env bash
# ray 2.60.0: an actor with num_gpus=0 holds a CPU as long as it lives; without num_gpus it holds none.
#
# Guess: num_gpus=0 says what an actor has anyway, so both hold no CPU while they run, as the documentation has it for
#        actors without resources.
# Seen:  on a node with 3 CPUs, 3 are free beside the plain actor and beside one with memory, 2 beside one with num_gpus=0
#        or num_gpus=1. A trainer whose options fill in num_gpus from a configuration takes a CPU for each such actor, also
#        where the number is 0: on nodes whose CPUs placement groups hold, it waits for ever. num_cpus=0 beside it helps.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
make_venv ray==2.60.0

seen=$(
	python 2>/dev/null - <<-'END'
		import time

		import ray

		ray.init(num_cpus=3, num_gpus=1, include_dashboard=False, log_to_driver=False, logging_level="error")

		class Actor:
		    def ping(self):
		        pass

		def free(**options):
		    actor = ray.remote(Actor).options(**options).remote()
		    ray.get(actor.ping.remote())
		    time.sleep(2)  # the node reports what it has left
		    cpus = ray.available_resources()["CPU"]
		    ray.kill(actor)
		    time.sleep(2)
		    return f"{cpus:g}"

		print(free(), free(memory=1), free(num_gpus=0), free(num_gpus=1), free(num_gpus=0, num_cpus=0))
	END
)
expect 'CPUs that are free beside a plain actor, with memory, num_gpus=0, num_gpus=1, num_gpus=0 and num_cpus=0' \
	'3 3 2 2 3' "$seen"
